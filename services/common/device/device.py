"""A process and its GPU: it gives back memory for stacks, and ends when the GPU is lost.

After a fatal fault of a GPU a process can only end.
"""

import logging
import os

import torch

_LOG = logging.getLogger(__name__)
_LOST = 71
_STACK_SIZE = 0
"""cudaLimitStackSize."""


def keep_no_stack(device: torch.device) -> None:
    """Frees what CUDA keeps for the stacks of all threads that a GPU can run: 264 MiB on an H200.

    Call it before anything is captured. Kernels that need a stack still get one when they are launched.
    """
    if device.type == "cuda":
        import cupy  # only where there is a GPU

        with cupy.cuda.Device(device.index):
            cupy.cuda.runtime.deviceSetLimit(_STACK_SIZE, 0)


def sound(device: torch.device) -> bool:
    """Whether the device still works; after a fatal fault every call of CUDA fails. Does not wait for the device."""
    try:
        if device.type == "cuda":
            torch.cuda.current_stream(device).query()
    except RuntimeError:
        return False
    return True


def end_if_lost(device: torch.device) -> None:
    """Ends the process when its device is lost; its supervisor starts another one."""
    if not sound(device):
        _LOG.critical("the device is lost")
        os._exit(_LOST)
