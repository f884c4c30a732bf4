"""Requests with random prompts, whose text depends on nothing but themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from services.common.request.sampling import SamplingParams, StopParams
from services.target.core.plan import PositionLogprobs
from services.target.core.request import RequestSpec

TOLD = (1, 6)
"""Numbers of requests that ask for log-probabilities."""


@dataclass(frozen=True)
class LoadSizes:
    """Tokens of each text, and ranges of prompt lengths, from which every request takes one in turn."""

    tokens: int
    prompts: tuple[tuple[int, int], ...]

    @property
    def longest(self) -> int:
        """Tokens of a prompt and its text at most."""
        return self.tokens + max(high for _, high in self.prompts)


@dataclass
class Text:
    """What one request said."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)


def specs_of(count: int, vocab: int, sizes: LoadSizes, seed: int = 22) -> list[RequestSpec]:
    """Half of the requests are greedy; a quarter samples, and a quarter does so with processors."""
    dice, specs = random.Random(seed), []
    for number in range(count):
        ids = tuple(dice.choices(range(2, vocab), k=dice.randint(*sizes.prompts[number % len(sizes.prompts)])))
        stopping = StopParams(max_tokens=sizes.tokens, ignore_eos=True)
        told = 3 if number in TOLD else None
        specs.append(RequestSpec(f"r{number}", ids, len(ids), _sampling(number), stopping, logprobs=told))
    return specs


def begun(spec: RequestSpec, tokens: int) -> RequestSpec:
    """The same request, which ends after so many tokens."""
    return replace(spec, stopping=replace(spec.stopping, max_tokens=tokens))


def resumed(spec: RequestSpec, tokens: Sequence[int]) -> RequestSpec:
    """The same request with output that it has already."""
    return replace(spec, token_ids=(*spec.token_ids, *tokens))


def _sampling(number: int) -> SamplingParams:
    if number % 4 == 1:
        return SamplingParams(temperature=0.8, seed=number)
    if number % 4 == 3:
        return SamplingParams(
            temperature=0.8, top_p=0.95, top_k=50, seed=number, repetition_penalty=1.1, presence_penalty=0.3
        )
    return SamplingParams()
