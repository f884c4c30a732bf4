"""The best token, or the best few, of every row of logits, or of their product with the head.

On a CPU the best of each group of a row come first, then those inside the best groups. Maxima of groups are read as
fast as memory gives them. Torch's argmax and topk look at one score after another, which takes them several times as
long. The best few scores lie in as many groups: those whose own best are the largest.
"""

import torch
from torch import Tensor

from services.common.kernels.argmax_token.columns import columns_at_once
from services.common.kernels.argmax_token.draws import Draws
from services.common.kernels.dispatch import Operator
from services.common.kernels.linear.reference import linear
from services.common.kernels.linear.weight import Weight

__all__ = [
    "Draws",
    "argmax_of_product",
    "argmax_token",
    "best_of_groups",
    "columns_at_once",
    "top_of_groups",
    "top_of_product",
]

_ROWS = 512
_GROUP = 128
"""Scores: vocabularies of most models are whole groups."""
_LEAST = 16
"""Groups for each score that is wanted, from which on two looks are quicker than one."""


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


def best_of_groups(scores: Tensor) -> Tensor:
    """Return the argmax of the last dimension [...], int64; the lowest place among equals."""
    if not _parts(scores, 1):
        return scores.argmax(-1)
    groups_GC: Tensor = scores.unflatten(-1, (-1, _GROUP))
    group_1 = groups_GC.amax(-1).argmax(-1, keepdim=True)
    own_C = groups_GC.take_along_dim(group_1[..., None], -2).squeeze(-2)
    return group_1.squeeze(-1) * _GROUP + own_C.argmax(-1)


def top_of_groups(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the best scores of every row [R, count], best first, and their places, int64."""
    if not _parts(scores_RV, count):
        values_RC, ids_RC = scores_RV.topk(count, -1)
        return values_RC, ids_RC
    groups_RGC: Tensor = scores_RV.unflatten(-1, (-1, _GROUP))
    best_RC = groups_RGC.amax(-1).topk(count, -1, sorted=False).indices
    own_RC = groups_RGC.take_along_dim(best_RC[..., None], -2).flatten(-2)
    values_RC, places_RC = own_RC.topk(count, -1)
    return values_RC, best_RC.gather(-1, places_RC // _GROUP) * _GROUP + places_RC % _GROUP


def _parts(scores: Tensor, count: int) -> bool:
    """Whether a row has whole groups, and by far more of them than are read again."""
    return scores.shape[-1] % _GROUP == 0 and scores.shape[-1] >= _LEAST * count * _GROUP
