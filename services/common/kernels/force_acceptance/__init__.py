"""Edits logits for synthetic acceptance: drafts to accept become the best tokens of their rows."""

from torch import Tensor

from services.common.kernels.accept import SlotState
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.force_acceptance import reference
from services.common.kernels.linear import TileBest


def force_acceptance(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rates_K: Tensor,
    rows_B: Tensor,
    slots: SlotState,
    best: TileBest | None = None,
) -> None:
    """Raise the scores of drafts to accept above all others and lower those of the rest, in place.

    A row draws one number: draft j is raised when it is below `rates_K[j]`, so rates are unconditional and fall. The
    number depends on the request's seed and the position of the span's first choice, not on row, slot or round.
    `best`, which a product on a GPU left of the logits, is brought up to date: a tile whose best is lowered loses.
    """
    if on_kernel(logits_BWV):
        from services.common.kernels.force_acceptance import kernel

        kernel.force_acceptance(logits_BWV, drafts_BK, rates_K, rows_B, slots, best)
    else:
        reference.force_acceptance(logits_BWV, drafts_BK, rates_K, rows_B, slots)
