"""Runs chains of small torch operators without Python in between."""

import warnings
from typing import Any, TypeVar, cast

import torch

Part = TypeVar("Part")


def compiled(part: Part) -> Part:
    """Return a function or module as TorchScript, which needs no C++ compiler at run time, as torch.compile does.

    TorchScript is deprecated but part of every supported torch; a torch without it runs the part as it is.
    """
    script: Any = getattr(torch.jit, "script", None)
    if script is None:
        return part
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cast(Part, script(part))
