"""Raising drafts in torch."""

import torch
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC, uniform
from services.common.kernels.accept import SlotState
from services.common.kernels.linear import TileBest
from services.common.kernels.row_table import RowTable

LIFT = 1e4


def force_acceptance(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rates_K: Tensor,
    rows_B: Tensor,
    slots: SlotState,
    best: TileBest | None = None,
    table: RowTable | None = None,
) -> None:
    """Raise the scores of drafts to accept above all others and lower those of the rest, in place.

    A row draws one number: draft j is raised when it is below its rate, so rates are unconditional and fall. The
    number depends on the request's seed and the position of the span's first choice, not on row, slot or round. Rates
    may have lines [N, K], which slots have in turn. With a `table` logits are of the rows of pieces [P, G, V].
    `best`, which a product on a GPU left of the logits, is brought up to date: a tile whose best is lowered loses.
    """
    slots_B = rows_B.long()
    chance_B = uniform(slots.seed_S[slots_B], slots.length_S[slots_B] + 1, PURPOSE_SYNTHETIC)
    rates_NK = torch.atleast_2d(rates_K)
    rates_BK = rates_NK[slots_B % len(rates_NK)]
    lift_BK = torch.where(chance_B[:, None] < rates_BK, LIFT, -LIFT).to(logits_BWV.dtype)
    if table is None:
        logits_BWV[:, :-1].scatter_(2, drafts_BK.clamp_min(0).unsqueeze(2), lift_BK.unsqueeze(2))
        return
    row_BK = table.rows_of(drafts_BK.shape[1])
    known_BK = torch.arange(drafts_BK.shape[1]) < table.takes_B[:, None]
    logits_BWV.flatten(0, 1)[row_BK[known_BK], drafts_BK.clamp_min(0)[known_BK]] = lift_BK[known_BK]
