"""Whether a device still works: after a fatal fault of a GPU a process can do nothing but end."""

import logging
import os

import torch

_LOG = logging.getLogger(__name__)
_LOST = 71


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
