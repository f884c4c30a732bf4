"""Chooses the implementation of an operator for a tensor."""

import os

from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def on_kernel(tensor: Tensor) -> bool:
    """Whether the Triton kernel serves this tensor: on a GPU, and everywhere under Triton's CPU interpreter."""
    return tensor.is_cuda or INTERPRETED
