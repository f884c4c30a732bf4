"""Synthetic acceptance: all the work of a round with random weights, and acceptance at given rates.

The drafts that shall be accepted are made the best tokens of their rows and the others impossible, so that the accept
rule itself, unchanged, comes to the wanted length.
"""

import torch
from torch import Tensor

from services.common.kernels.force_acceptance import force_acceptance


class SyntheticAcceptance:
    """Edits logits in place, within a captured step; unconditional rates by position, falling."""

    def __init__(self, rates: tuple[float, ...], bucket: int, width: int, device: torch.device) -> None:
        """`rates` beyond the round's drafts are cut, missing ones are 0."""
        known = (*rates, *[0.0] * width)[: width - 1]
        self._rates_K = torch.tensor(known, dtype=torch.float32, device=device)
        self._calls_B = torch.zeros(bucket, dtype=torch.int64, device=device)

    def apply(self, logits_BWV: Tensor, drafts_BK: Tensor) -> None:
        """Lift the accepted drafts [B, K] over all other tokens, and sink the rest."""
        force_acceptance(logits_BWV, drafts_BK, self._rates_K, self._calls_B)
