"""A GPU as a process holds it: with little memory of its own, and only as long as it works.

After a fatal fault of a GPU a process can do nothing but end.
"""

import logging
import os

import torch

_LOG = logging.getLogger(__name__)
_LOST = 71
_STACK_SIZE = 0
"""cudaLimitStackSize."""


def keep_no_stack(device: torch.device) -> None:
    """Gives back what CUDA keeps for the stacks of all threads that a GPU can run, 264 MiB of an H200's.

    Kernels that need one still get it when they are launched. Before anything is captured.
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
    """Ends the process when its device is lost, so that who watches it starts another one."""
    if not sound(device):
        _LOG.critical("the device is lost")
        os._exit(_LOST)
