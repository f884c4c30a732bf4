"""Argmax in torch."""

from torch import Tensor


def best_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension."""
    return logits.argmax(-1)
