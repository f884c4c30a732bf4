"""How threads compute: how many there are of torch and NumPy's OpenBLAS, on which core, and in inference mode.

Target and drafter share a machine's cores; a library that takes all of them slows the other down more than it gains.
"""

import ctypes
import os
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

_SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")


def inference() -> AbstractContextManager[object]:
    """In it a thread keeps nothing for gradients; to enter it for each call would take some microseconds each time."""
    return torch.inference_mode()


def stay_on_core(core: int) -> None:
    """Keep the calling thread, and threads that it starts, on one core; -1 and cores of others change nothing.

    A target's engine and its drafter take turns. On one core each finds the other's context and weights in the caches,
    and no second core must wake. The event loops and clients keep the other cores.
    """
    if core in os.sched_getaffinity(0):
        os.sched_setaffinity(0, {core})


def use_threads(count: int) -> None:
    """Compute with `count` threads from now on; an OpenBLAS that is not part of NumPy's wheel keeps its own number."""
    torch.set_num_threads(count)
    for path in Path(np.__file__).parents[1].glob("numpy.libs/lib*openblas*"):
        library = ctypes.CDLL(str(path))
        setter = next((getattr(library, name) for name in _SETTERS if hasattr(library, name)), None)
        if setter is not None:
            setter(ctypes.c_int(count))
