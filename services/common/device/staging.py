"""Copies plain numbers to a device in the order of its stream, without making the host wait.

A plain assignment copies from memory that is not pinned: the host then waits for all work before it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = Sequence[int] | Sequence[float] | NDArray[Any]


def write(target: Tensor, values: Numbers) -> None:
    """Fills `target`, of one dimension and as long as `values`."""
    target.copy_(_host(values, target.dtype, target.device), non_blocking=True)


def upload(values: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A new tensor of these values on the device."""
    return _host(values, dtype, device).to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Tensor:
    """A copy on the host, in pinned memory for a GPU; it is complete when the stream has passed it."""
    return tensor.to("cpu", non_blocking=True, copy=True)


def _host(values: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    pinned = device.type == "cuda"
    if not isinstance(values, np.ndarray):
        return torch.tensor(values, dtype=dtype, pin_memory=pinned)
    # torch builds no pinned tensor from numpy's memory.
    host = torch.tensor(values, dtype=dtype)
    return host.pin_memory() if pinned else host
