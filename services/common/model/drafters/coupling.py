"""The noise that a target draws with, shared with the drafts."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from services.common.kernels.argmax_token import Draws
from services.common.model.drafters.spec import AnyDrafterSpec, DrafterSpec
from services.common.model.spec import StackSpec

SEEDED = ("dflash2", "dspark")
"""Kinds that a GPU has served with noise of its own making; others name the likeliest tokens there."""


@dataclass(frozen=True)
class Coupling:
    """The noise [B, K, V] that the target's draw adds to its scores, with weight 0 for greedy rows, and a scale [B].

    The target draws the argmax of logits / temperature + noise; a drafter that adds the same noise to its own logits
    agrees more often than one that guesses the mode (Gumbel coupling, arXiv:2408.07978).
    """

    noise_BKV: Tensor
    scale_B: Tensor
    weight_B: Tensor

    def apply(self, logits_RV: Tensor, count: int) -> Tensor:
        """Return the scores of flat rows [B * count, V]."""
        logits_BKV = logits_RV.view(-1, count, logits_RV.shape[-1])
        scores_BKV = logits_BKV * self.scale_B[:, None, None] + self.noise_BKV * self.weight_B[:, None, None]
        return scores_BKV.flatten(0, 1)

    def at(self, logits_BV: Tensor, position: int) -> Tensor:
        """Return the scores [B, V] of the drafts at one position of the block."""
        return logits_BV * self.scale_B[:, None] + self.noise_BKV[:, position] * self.weight_B[:, None]

    @property
    def draws(self) -> Draws | None:
        """What makes the noise where it is not held."""
        return None


class SeededCoupling(Coupling):
    """The noise as a GPU has it: kernels that look for the best tokens make it. There are no numbers of all tokens."""

    def __init__(self, draws: Draws) -> None:
        """Of a draft's first position on."""
        object.__setattr__(self, "_draws", draws)

    @property
    def draws(self) -> Draws:
        """What makes the noise."""
        found: Draws = self.__dict__["_draws"]
        return found

    @cached_property
    def scale_B(self) -> Tensor:
        """Sharpness over temperature, 1 for greedy rows."""
        return torch.where(self._hot_B, self.draws.sharpness / self._temperature_B, 1.0)

    @cached_property
    def weight_B(self) -> Tensor:
        """0 for greedy rows."""
        return self._hot_B.float()

    @cached_property
    def _temperature_B(self) -> Tensor:
        return self.draws.temperature_S.index_select(0, self.draws.rows_B)

    @cached_property
    def _hot_B(self) -> Tensor:
        return self._temperature_B > 0


def seeded(spec: StackSpec) -> bool:
    """Whether kernels make the noise on a GPU: of kinds served so, with scores that are logits of all tokens."""
    plain = not isinstance(spec, DrafterSpec) or (spec.logit_scale, spec.logit_cap) == (1.0, 0.0)
    return plain and isinstance(spec, AnyDrafterSpec) and not spec.draft_vocab and spec.kind in SEEDED
