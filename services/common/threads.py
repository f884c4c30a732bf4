"""How many threads a process computes with: torch's own, and those of the OpenBLAS that NumPy brings.

Target and drafter share a machine's cores; a library that takes all of them slows the other down more than it gains.
"""

import ctypes
from pathlib import Path

import numpy as np
import torch

_SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")


def use_threads(count: int) -> None:
    """Compute with `count` threads from now on; an OpenBLAS that is not part of NumPy's wheel is left alone."""
    torch.set_num_threads(count)
    for path in Path(np.__file__).parents[1].glob("numpy.libs/lib*openblas*"):
        library = ctypes.CDLL(str(path))
        setter = next((getattr(library, name) for name in _SETTERS if hasattr(library, name)), None)
        if setter is not None:
            setter(ctypes.c_int(count))
