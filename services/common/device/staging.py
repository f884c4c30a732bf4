"""Plain numbers on their way to a device, in the order of its stream: the host never waits for a GPU to take them.

An assignment copies from memory that is not pinned, for which the host waits until everything before it has run.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Numbers = Sequence[int] | Sequence[float]


def write(target: Tensor, values: Numbers) -> None:
    """Fills `target`, of one dimension and as long as `values`."""
    target.copy_(_host(values, target.dtype, target.device), non_blocking=True)


def upload(values: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A new tensor of these values on the device."""
    return _host(values, dtype, device).to(device, non_blocking=True)


def _host(values: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")
