"""How the columns of a head are divided among programs; no division changes a bit."""

from typing import NamedTuple


class Cut(NamedTuple):
    """Columns of the state that a program has, and its warps."""

    columns: int
    warps: int


def cut_round(sequences: int, heads: int, v_dim: int) -> Cut:
    """Return the cut of rounds."""
    return Cut(min(32, v_dim), 4)


def cut_chunk(sequences: int, heads: int, v_dim: int) -> Cut:
    """Return the cut of chunks, whose programs go through blocks one after the other."""
    return Cut(min(32, v_dim), 4)
