"""An independent eager float32 model, and how far a pair's log-probabilities are from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

Fault = Callable[[Tensor, Tensor, int], None]
"""Spoils ids [1, T] and visibility [T, T] in place, given the length of the prompt."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a pair chose, greedily, and its log-probability of each choice."""

    prompt: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]


@dataclass(frozen=True, slots=True)
class Deviation:
    """Distances in nat over some positions; `regret` is what a choice lost at most, `missed` how many lost anything."""

    positions: int
    worst: float
    mean: float
    p99: float
    regret: float
    missed: int

    @property
    def golden(self) -> bool:
        """Within what bfloat16 explains."""
        return self.worst <= 0.20 and self.mean <= 0.06 and self.p99 <= 0.20 and self.regret <= 0.20


class EagerReference:
    """Hugging Face's forward of a checkpoint over whole texts, teacher-forced."""

    def __init__(self, folder: Path, device: str) -> None:
        """Loads in float32 with eager attention."""
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        self._model, self._device = model.to(device).eval(), device

    def deviation(self, said: Sequence[Said], fault: Fault | None = None) -> Deviation:
        """Compares every position; with a `fault` the reference makes that mistake."""
        pairs = [self._distances(one, fault) for one in said]
        distances, regrets = (torch.cat(column) for column in zip(*pairs, strict=True))
        return Deviation(
            len(distances),
            float(distances.max()),
            float(distances.mean()),
            float(distances.quantile(0.99)),
            float(regrets.max()),
            int((regrets > 0).sum()),
        )

    @torch.inference_mode()
    def _distances(self, said: Said, fault: Fault | None) -> tuple[Tensor, Tensor]:
        ids_1T = torch.tensor([[*said.prompt, *said.tokens]], device=self._device)
        chosen_1T = ids_1T[:, len(said.prompt) :].clone()
        count = ids_1T.shape[1]
        seen_TT = torch.ones(count, count, dtype=torch.bool, device=self._device).tril()
        if fault is not None:
            fault(ids_1T, seen_TT, len(said.prompt))
        mask = torch.zeros(1, 1, count, count, device=self._device).masked_fill_(~seen_TT, float("-inf"))
        logits = self._model(ids_1T, attention_mask=mask, use_cache=False).logits[:, len(said.prompt) - 1 : -1]
        scores = logits.float().log_softmax(-1)
        own = scores.gather(2, chosen_1T[..., None])[0, :, 0]
        told = torch.tensor(said.logprobs, device=self._device)
        return (own - told).abs().cpu(), (scores.max(-1).values[0] - own).cpu()


def hides_one_key(ids_1T: Tensor, seen_TT: Tensor, prompt: int) -> None:
    """An off-by-one in K/V: the token before the last of the prompt is never there."""
    seen_TT[prompt:, prompt - 2] = False


def sees_one_ahead(ids_1T: Tensor, seen_TT: Tensor, prompt: int) -> None:
    """A mask error of one row in eight: it sees its successor."""
    rows = torch.arange(prompt, len(seen_TT) - 1, 8, device=seen_TT.device)
    seen_TT[rows, rows + 1] = True


def swaps_two(ids_1T: Tensor, seen_TT: Tensor, prompt: int) -> None:
    """Two rows of a span swapped, once."""
    middle = (prompt + ids_1T.shape[1]) // 2
    ids_1T[0, [middle, middle + 1]] = ids_1T[0, [middle + 1, middle]]
