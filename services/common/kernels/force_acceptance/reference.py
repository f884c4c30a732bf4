"""Raising drafts in torch."""

import torch
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC, uniform
from services.common.kernels.accept import SlotState
from services.common.kernels.linear import TileBest

LIFT = 1e4


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
    slots_B = rows_B.long()
    chance_B = uniform(slots.seed_S[slots_B], slots.length_S[slots_B] + 1, PURPOSE_SYNTHETIC)
    lift_BK = torch.where(chance_B[:, None] < rates_K, LIFT, -LIFT).to(logits_BWV.dtype)
    logits_BWV[:, :-1].scatter_(2, drafts_BK.clamp_min(0).unsqueeze(2), lift_BK.unsqueeze(2))
