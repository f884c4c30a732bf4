"""The best token, or the best few, of every row of logits, or of their product with the head."""

import torch
from torch import Tensor

from services.common.kernels.argmax_token.columns import columns_at_once
from services.common.kernels.argmax_token.draws import Draws
from services.common.kernels.argmax_token.groups import best_of_groups, top_of_groups
from services.common.kernels.dispatch import Operator
from services.common.kernels.linear.reference import linear
from services.common.kernels.linear.weight import Weight

__all__ = ["Draws", "argmax_of_product", "argmax_token", "columns_at_once", "top_of_groups", "top_of_product"]

_ROWS = 512


@Operator
def argmax_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension [...], int64; the lowest id among equals."""
    return best_of_groups(logits)


@Operator
def argmax_of_product(rows_RD: Tensor, weight_VD: Weight, draws: Draws | None = None) -> Tensor:
    """Return the argmax of every row of `rows @ weight.T` [R], int64; the lowest id among equals.

    With `draws` the noise of rows counts.
    """
    if draws is not None:
        return best_of_groups(draws.of(linear(rows_RD, weight_VD)))
    if len(rows_RD) <= _ROWS:
        return best_of_groups(linear(rows_RD, weight_VD))
    return torch.cat([best_of_groups(linear(some_RD, weight_VD)) for some_RD in rows_RD.split(_ROWS)])


@Operator
def top_of_product(rows_RD: Tensor, weight_VD: Weight, count: int, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
    """Return the best scores of every row of `rows @ weight.T` [R, count], best first, and their tokens, int64.

    There may be no more than tokens. With `draws` the noise of rows counts, and is in their scores. On a GPU scores are
    float32, and among equals the lowest token is first.
    """
    scores_RV = linear(rows_RD, weight_VD)
    return top_of_groups(scores_RV if draws is None else draws.of(scores_RV), count)
