"""Raising drafts in torch."""

import torch
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC, uniform
from services.common.kernels.accept import SlotState

LIFT = 1e4


def force_acceptance(logits_BWV: Tensor, drafts_BK: Tensor, rates_K: Tensor, rows_B: Tensor, slots: SlotState) -> None:
    """Raise or lower the scores of every row's drafts in place."""
    slots_B = rows_B.long()
    chance_B = uniform(slots.seed_S[slots_B], slots.length_S[slots_B] + 1, PURPOSE_SYNTHETIC)
    lift_BK = torch.where(chance_B[:, None] < rates_K, LIFT, -LIFT).to(logits_BWV.dtype)
    logits_BWV[:, :-1].scatter_(2, drafts_BK.clamp_min(0).unsqueeze(2), lift_BK.unsqueeze(2))
