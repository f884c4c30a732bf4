"""The oracle of sampling and commit: one token at a time in plain Python."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.common.kernels.accept import End, SlotParams


def single(value: float) -> float:
    """Return the value as the float32 buffers hold it."""
    return float(np.float32(value))


@dataclass
class Plain:
    """One request that is decoded a token at a time; `allowed` says which tokens a grammar allows after an output."""

    params: SlotParams
    prompt: list[int]
    output: list[int] = field(default_factory=list)
    allowed: Callable[[Sequence[int]], frozenset[int]] | None = None

    def processed(self, logits: Sequence[float]) -> list[float]:
        """Return the logits after penalties, bias, the minimum length and the grammar."""
        p, scores = self.params, list(logits)
        for token in range(len(scores)):
            count = self.output.count(token)
            if count or token in self.prompt:
                factor = single(p.repetition_penalty)
                scores[token] = scores[token] / factor if scores[token] > 0 else scores[token] * factor
            scores[token] -= single(p.frequency_penalty) * count
            scores[token] -= single(p.presence_penalty) * (count > 0)
        for token, bias in p.logit_bias:
            scores[token] += single(bias)
        if len(self.output) < p.min_tokens:
            for token in p.stop_ids:
                scores[token] = -math.inf
        if self.allowed is not None:
            allowed = self.allowed(self.output)
            scores = [score if token in allowed else -math.inf for token, score in enumerate(scores)]
        return scores

    def law(self, logits: Sequence[float]) -> list[float]:
        """Return the probability of every next token."""
        p, scores = self.params, self.processed(logits)
        if p.temperature == 0:
            best = scores.index(max(scores))
            return [float(token == best) for token in range(len(scores))]
        scores = [score / single(p.temperature) for score in scores]
        if p.top_k:
            kth = sorted(scores, reverse=True)[min(p.top_k, len(scores)) - 1]
            scores = [score if score >= kth else -math.inf for score in scores]
        weights = softmax(scores)
        if p.top_p < 1:
            larger = [sum(other for other in weights if other > weight) for weight in weights]
            scores = [s if mass < single(p.top_p) else -math.inf for s, mass in zip(scores, larger, strict=True)]
            weights = softmax(scores)
        if p.min_p:
            floor = max(scores) + math.log(single(p.min_p))
            weights = softmax([score if score >= floor else -math.inf for score in scores])
        return weights

    def choose(self, logits: Sequence[float], noise: Sequence[float]) -> int:
        """Return argmax of score + noise, lowest id on ties; scores up to a constant are log-probabilities."""
        if self.params.temperature == 0:
            scores = self.processed(logits)
        else:
            scores = [math.log(w) + g if w else -math.inf for w, g in zip(self.law(logits), noise, strict=True)]
        return scores.index(max(scores))

    def commit(self, token: int) -> End:
        """Append a token and say whether the request ends with it."""
        self.output.append(token)
        if token in self.params.stop_ids:
            return End.STOP_TOKEN
        if len(self.output) >= self.params.max_tokens:
            return End.LENGTH
        return End.CONTEXT if len(self.prompt) + len(self.output) >= self.params.context_limit else End.NONE

    def round(
        self,
        rows: Sequence[Sequence[float]],
        noise: Sequence[Sequence[float]] | np.ndarray,
        start: int,
        drafts: Sequence[int],
    ) -> tuple[list[int], End]:
        """Decode while the drafts are right; `noise` begins at the absolute position `start`."""
        made: list[int] = []
        for offset, logits in enumerate(rows):
            token = self.choose(logits, noise[len(self.prompt) + len(self.output) - start])
            made.append(token)
            end = self.commit(token)
            if end or offset >= len(drafts) or drafts[offset] != token:
                return made, end
        return made, End.NONE


def softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]
