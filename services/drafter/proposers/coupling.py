"""The noise that drafts share with their target's draw."""

import torch
from torch import Tensor

from services.common.model.drafters.coupling import Coupling
from services.drafter.arena_view import ArenaView


def coupled(shared: ArenaView, rows_B: Tensor, lengths_B: Tensor, count: int, sharpness: float) -> Coupling | None:
    """Return the noise of the drafted positions, where the target shares it and a row samples.

    `sharpness` is a factor on the logits of such rows.
    """
    if shared.noise_TV is None or shared.temperature_S is None:
        return None
    temperature_B = shared.temperature_S.index_select(0, rows_B)
    sampled_B = temperature_B > 0
    if not bool(sampled_B.any()):
        return None
    held = shared.noise_TV.shape[0] // shared.temperature_S.shape[0]
    positions_BK = lengths_B[:, None] + torch.arange(1, count + 1)
    places_BK = rows_B[:, None] * held + positions_BK % held
    noise_BKV = shared.noise_TV.index_select(0, places_BK.flatten()).view(*places_BK.shape, -1)
    scale_B = torch.where(sampled_B, sharpness / temperature_B.clamp_min(1e-6), 1.0)
    return Coupling(noise_BKV, scale_B.to(noise_BKV.dtype), sampled_B.to(noise_BKV.dtype))
