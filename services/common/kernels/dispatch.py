"""Chooses the implementation of an operator for a tensor, and tells where Triton keeps what it compiled."""

import os
from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar, cast

from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
P = ParamSpec("P")
R = TypeVar("R")


def on_kernel(tensor: Tensor) -> bool:
    """Whether the Triton kernel serves this tensor: on a GPU, and everywhere under Triton's CPU interpreter."""
    return tensor.is_cuda or INTERPRETED


class Operator(Generic[P, R]):
    """A function in torch, its `reference`, and on a GPU that of its name and signature in `kernel.py` beside it.

    It stands in the package itself, or in `reference.py` where more than the operator calls it. Triton is imported by
    the first call that needs it.
    """

    def __init__(self, reference: Callable[P, R], told_by: int = 0) -> None:
        """`told_by`: the argument, given by place, whose tensor tells where an operator runs."""
        update_wrapper(self, reference)
        self.reference, self._told_by = reference, told_by

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Computes where the tensor lies."""
        told_by = cast("Tensor", args[self._told_by])
        if not (told_by.is_cuda or INTERPRETED):  # as `on_kernel`: a round has many operators, each a call less
            return self.reference(*args, **kwargs)
        beside = import_module(f"{self.reference.__module__.removesuffix('.reference')}.kernel")
        return cast("R", getattr(beside, self.reference.__name__)(*args, **kwargs))


def told_by(argument: int) -> Callable[[Callable[P, R]], Operator[P, R]]:
    """Make an operator of a function, whose tensor at this place tells where it runs."""
    return lambda reference: Operator(reference, argument)


def compiled_kernels() -> Path:
    """Return the folder of compiled kernels, which may not exist yet."""
    given = os.environ.get("TRITON_CACHE_DIR")
    return Path(given) if given else Path.home() / ".triton" / "cache"
