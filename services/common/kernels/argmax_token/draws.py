"""Rows of scores that get the noise by which the target draws, as `services/common/device/noise.py` defines it."""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.device.noise import gumbel


class Draws(NamedTuple):
    """Whose noise rows get: as many rows in turn are of each of the slots `rows_B`, at positions one after another.

    Scores of a slot whose temperature is above 0 are multiplied by sharpness / temperature, and have the noise of their
    position: the slot's length and one, `first` and the row's number. Scores of other slots stay. `tokens_V` are the
    target's tokens that are scored, int64, where these are not all in their order.
    """

    rows_B: Tensor
    seed_S: Tensor
    length_S: Tensor
    temperature_S: Tensor
    sharpness: float
    first: int = 0
    tokens_V: Tensor | None = None

    def of(self, scores_RV: Tensor) -> Tensor:
        """Return the scores with the noise, in float32."""
        batch = len(self.rows_B)
        slots_B = self.rows_B.long()
        temperature_B11 = self.temperature_S[slots_B][:, None, None]
        numbers_K = torch.arange(len(scores_RV) // batch)
        positions_BK = self.length_S[slots_B][:, None] + 1 + self.first + numbers_K
        vocab = scores_RV.shape[1] if self.tokens_V is None else int(self.tokens_V.max()) + 1
        noise_BKV = gumbel(self.seed_S[slots_B], positions_BK, vocab)
        noise_BKV = noise_BKV if self.tokens_V is None else noise_BKV.index_select(-1, self.tokens_V)
        scores_BKV = scores_RV.float().view(batch, -1, scores_RV.shape[1])
        hot_BKV = scores_BKV * (self.sharpness / temperature_B11.clamp(min=1e-6)) + noise_BKV
        return torch.where(temperature_B11 > 0, hot_BKV, scores_BKV).flatten(0, 1)
