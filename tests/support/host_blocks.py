"""The blocks that a target runs on a CPU."""

from inspect import getclosurevars
from typing import Any


def host_blocks(target: Any) -> Any:
    """Return the compiled module that a target's function of blocks calls."""
    return getclosurevars(target._stack).nonlocals["host_blocks"]
