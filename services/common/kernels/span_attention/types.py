"""What kernels in CUDA C++ ask of tensors that others hand in."""

from collections.abc import Iterable

import torch
from torch import Tensor


def readable(*kinds: tuple[torch.dtype, Iterable[Tensor | None]]) -> bool:
    """Whether all tensors that are there lie in a row and have their type."""
    given = ((kind, x) for kind, tensors in kinds for x in tensors if x is not None)
    return all(x.dtype == kind and x.is_contiguous() for kind, x in given)
