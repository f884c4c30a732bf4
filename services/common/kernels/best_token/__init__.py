"""The best token of every row of logits."""

from torch import Tensor

from services.common.kernels.best_token import reference
from services.common.kernels.dispatch import on_kernel


def best_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension [...], int64; the lowest id among equals."""
    if on_kernel(logits):
        from services.common.kernels.best_token import kernel

        return kernel.best_token(logits)
    return reference.best_token(logits)
