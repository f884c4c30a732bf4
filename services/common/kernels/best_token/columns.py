"""How many scores of a product with the head exist at a time, before only the best of them are kept."""

TILE = 4096
"""Scores of which a program keeps the best."""
_MOST_SCORES = 8 << 20
_LEAST_TILES = 2


def columns_at_once(rows: int, vocab: int) -> int:
    """Return how many tokens of the vocabulary are scored at a time for so many rows; pieces are about equal."""
    tiles = -(-vocab // TILE)
    pieces = -(-tiles // max(_LEAST_TILES, _MOST_SCORES // (rows * TILE)))
    return -(-tiles // pieces) * TILE
