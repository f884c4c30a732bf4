"""The number of scores of a product with the head that exist at a time, before only the best are kept."""

TILE = 4096
"""Scores of one tile; a program keeps the best of them."""
_FEW_ROWS = 128
_FEW_ROWS_SCORES, _MOST_SCORES = 10 << 20, 48 << 20
"""A product of few rows waits for the head's bytes in any cut; one of many rows needs enough tiles at a time."""


def columns_at_once(rows: int, vocab: int) -> int:
    """Return how many tokens of the vocabulary are scored at a time for so many rows; pieces are about equal."""
    tiles = -(-vocab // TILE)
    pieces = -(-rows * vocab // (_FEW_ROWS_SCORES if rows <= _FEW_ROWS else _MOST_SCORES))
    return -(-tiles // min(pieces, tiles)) * TILE
