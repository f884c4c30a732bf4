"""The best token, or the best few, of every row of logits, or of their product with the head."""

from torch import Tensor

from services.common.kernels.argmax_token import reference
from services.common.kernels.argmax_token.columns import columns_at_once
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear.weight import Weight

__all__ = ["argmax_of_product", "argmax_token", "columns_at_once", "top_of_product"]


def argmax_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension [...], int64; the lowest id among equals."""
    if on_kernel(logits):
        from services.common.kernels.argmax_token import kernel

        return kernel.argmax_token(logits)
    return reference.argmax_token(logits)


def argmax_of_product(rows_RD: Tensor, weight_VD: Weight) -> Tensor:
    """Return the argmax of every row of `rows @ weight.T` [R], int64; the lowest id among equals."""
    if on_kernel(rows_RD):
        from services.common.kernels.argmax_token import kernel

        return kernel.argmax_of_product(rows_RD, weight_VD)
    return reference.argmax_of_product(rows_RD, weight_VD)


def top_of_product(rows_RD: Tensor, weight_VD: Weight, count: int) -> tuple[Tensor, Tensor]:
    """Return the best scores of every row of `rows @ weight.T` [R, count], best first, and their tokens, int64.

    There may be no more than tokens. On a GPU scores are float32, and among equals the lowest token is first.
    """
    if on_kernel(rows_RD):
        from services.common.kernels.argmax_token import top

        return top.top_of_product(rows_RD, weight_VD, count)
    return reference.top_of_product(rows_RD, weight_VD, count)
