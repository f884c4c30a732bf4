"""How drafters choose tokens out of the hidden states of a block."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.common.kernels.argmax_token import argmax_of_product, argmax_token
from services.common.kernels.linear import linear
from services.common.kernels.linear.int8_weight import Weight
from services.common.model.drafters.spec import DrafterSpec


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


class DraftHead(Protocol):
    """Chooses the drafts of a block."""

    sharpness: float
    """Factor on the logits of rows that are coupled to the target's draw."""

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """Return tokens [B, K] of the target's vocabulary, int64; `head` is what scores rows of hidden states.

        Without a coupling they are the most likely ones, else those that the target draws with the highest chance.
        """
        ...


class ArgmaxHead:
    """The best token of every row by itself."""

    sharpness = 1.3
    """Logits of later rows are too flat: they average over possible predecessors. Chosen on held-out text."""

    def __init__(self, spec: DrafterSpec) -> None:
        self._spec = spec

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """One product over flat rows, because a strided batch would read the head once for each sequence."""
        count = hidden_BKD.shape[1]
        rows_RD = hidden_BKD.reshape(-1, hidden_BKD.shape[-1])
        if coupling is not None:
            return argmax_token(coupling.apply(scaled_logits(rows_RD, head, self._spec), count)).view(-1, count)
        # A scale above 0 and a bound keep the order.
        return argmax_of_product(rows_RD, head).view(-1, count)


def scaled_logits(rows_RD: Tensor, head: Weight, spec: DrafterSpec) -> Tensor:
    """Return the logits [R, V] of rows as the checkpoint defines them: multiplied, then bounded."""
    logits_RV, cap = linear(rows_RD, head), spec.logit_cap
    if spec.logit_scale != 1.0:
        logits_RV = logits_RV * spec.logit_scale
    return (logits_RV / cap).tanh() * cap if cap else logits_RV
