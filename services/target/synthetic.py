"""Synthetic acceptance: all the work of a round with random weights, and acceptance at given rates.

The drafts that shall be accepted are made the best tokens of their rows and the others impossible, so that the accept
rule itself, unchanged, comes to the wanted length.
"""

import torch
from torch import Tensor

_LIFT = 1e4


class SyntheticAcceptance:
    """Edits logits in place, within a captured step; unconditional rates by position, falling."""

    def __init__(self, rates: tuple[float, ...], width: int, device: torch.device) -> None:
        """`rates` beyond the round's drafts are cut, missing ones are 0."""
        known = (*rates, *[0.0] * width)[: width - 1]
        self._rates_K = torch.tensor(known, dtype=torch.float32, device=device)

    def apply(self, logits_BWV: Tensor, drafts_BK: Tensor) -> None:
        """Lift the accepted drafts [B, K] over all other tokens, and sink the rest."""
        chance_B1 = torch.rand(drafts_BK.shape[0], 1, device=drafts_BK.device)
        lift_BK = torch.where(chance_B1 < self._rates_K, _LIFT, -_LIFT).to(logits_BWV.dtype)
        logits_BWV[:, :-1].scatter_(2, drafts_BK.clamp_min(0).unsqueeze(2), lift_BK.unsqueeze(2))
