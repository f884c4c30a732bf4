"""The best token of every row of logits, or of their product with the head."""

from torch import Tensor

from services.common.kernels.best_token import reference
from services.common.kernels.best_token.columns import columns_at_once
from services.common.kernels.dispatch import on_kernel

__all__ = ["best_of_product", "best_token", "columns_at_once"]


def best_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension [...], int64; the lowest id among equals."""
    if on_kernel(logits):
        from services.common.kernels.best_token import kernel

        return kernel.best_token(logits)
    return reference.best_token(logits)


def best_of_product(rows_RD: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the argmax of every row of `rows @ weight.T` [R], int64; the lowest id among equals."""
    if on_kernel(rows_RD):
        from services.common.kernels.best_token import kernel

        return kernel.best_of_product(rows_RD, weight_VD)
    return reference.best_of_product(rows_RD, weight_VD)
