"""Chooses the implementation of an operator for a tensor, and tells where Triton keeps what it compiled."""

import os
from pathlib import Path

from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def on_kernel(tensor: Tensor) -> bool:
    """Whether the Triton kernel serves this tensor: on a GPU, and everywhere under Triton's CPU interpreter."""
    return tensor.is_cuda or INTERPRETED


def compiled_kernels() -> Path:
    """Return the folder of compiled kernels, which may not exist yet."""
    given = os.environ.get("TRITON_CACHE_DIR")
    return Path(given) if given else Path.home() / ".triton" / "cache"
