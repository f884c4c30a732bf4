"""Which row counts the library may multiply by a weight: all but those that the check at start has refused.

The library chooses its kernel by the shapes of a product. Where that kernel adds in another order, our own takes its
place, at this row count alone.
"""

Product = tuple[int, int, int]
"""Outputs and depth of a weight, and the rows that are multiplied by it."""

_refused: set[Product] = set()


def allowed(outputs: int, depth: int, rows: int) -> bool:
    """Return whether the library may multiply so many rows by a weight [outputs, depth]."""
    return (outputs, depth, rows) not in _refused


def refuse(outputs: int, depth: int, rows: int) -> None:
    """Keep the library from a product; steps that are captured already keep what they captured."""
    _refused.add((outputs, depth, rows))


def allow(outputs: int, depth: int, rows: int) -> None:
    """Take a refusal back, if there is one."""
    _refused.discard((outputs, depth, rows))


def refused() -> tuple[Product, ...]:
    """Return every product that is kept from the library, in order."""
    return tuple(sorted(_refused))


def allow_all() -> None:
    """Forget which products the check at start refused."""
    _refused.clear()
