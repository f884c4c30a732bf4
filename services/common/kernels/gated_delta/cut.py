"""How the columns of a head are divided among programs; no division changes a bit."""

from typing import NamedTuple

ALONE = 64
"""Programs of a head each that hardly share a processor."""


class Cut(NamedTuple):
    """Columns of the state that a program has, its warps, and how many blocks ahead it asks for what was prepared.

    A multiple of 64 columns by a warp for 16, or all columns of smaller heads: others are another kind of product.
    """

    columns: int
    warps: int
    stages: int = 2


def cut_rows(sequences: int, heads: int, v_dim: int, few: bool) -> Cut:
    """Return the cut for spans of so many sequences, whose rows are few where they fit a round."""
    columns = min(64, v_dim)
    # Of one block or two there is nothing to ask for ahead; else stages take the room of a program, which many have.
    stages = 1 if few else 3 if sequences * heads <= ALONE else 2
    return Cut(columns, max(1, columns // 16), stages)
