"""The noise that a target draws with, shared with the drafts."""

from dataclasses import dataclass

from torch import Tensor


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
