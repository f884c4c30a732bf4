"""How the columns of a head are divided among programs, and where blocks are prepared; no division changes a bit."""

from typing import NamedTuple


class Cut(NamedTuple):
    """Columns of the state that a program has, its warps, and how many blocks ahead it asks for what was prepared.

    In a `fused` launch each program prepares its blocks itself.
    """

    columns: int
    warps: int
    stages: int = 2
    fused: bool = False


def cut_rows(sequences: int, heads: int, v_dim: int, few: bool) -> Cut:
    """Return the cut for spans of so many sequences, whose rows are few where they fit a round."""
    return Cut(min(16, v_dim), 2)
