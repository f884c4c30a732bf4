"""Memory that choosing among scores takes on a GPU."""

SCORED_ROWS = 512
"""Rows that are scored together."""
_SCORE_BYTES = 4
_GATHERED = 16
"""One of this many scores may be gathered."""


def scratch_bytes(rows: int, vocab: int) -> int:
    """Return the bytes beside the logits of so many rows: scores, and those that the search for a floor gathers."""
    scores = min(rows, SCORED_ROWS) * vocab * _SCORE_BYTES
    return scores + scores // _GATHERED
