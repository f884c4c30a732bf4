"""The best scores of a row on a CPU: the best of each group of a row, then those inside the best groups.

Maxima of groups are read as fast as memory gives them. Torch's argmax and topk look at one score after another, which
takes them several times as long. The best few scores lie in as many groups: those whose own best are the largest.
"""

from torch import Tensor

_GROUP = 128
"""Scores: vocabularies of most models are whole groups."""
_LEAST = 16
"""Groups for each score that is wanted, from which on two looks are quicker than one."""


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
