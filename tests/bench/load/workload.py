"""Which requests come, and when; the same for the same seed."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.stack import EMBEDDED
from tests.bench.load.client import Ask, LoadClient


@dataclass(frozen=True, slots=True)
class Mix:
    """Lengths of prompts and outputs, drawn evenly; `shared` tokens at the start are one of `groups` prefixes."""

    name: str
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    shared: int = 0
    groups: int = 1


SHORT = Mix("short", prompts=(24, 48), outputs=(32, 64))
MIXED = Mix("mixed", prompts=(16, 64, 256, 512), outputs=(16, 64, 128))
SHARED_PREFIX = Mix("shared_prefix", prompts=(16, 32), outputs=(32,), shared=256, groups=3)
MIXES = {mix.name: mix for mix in (SHORT, MIXED, SHARED_PREFIX)}


class Corpus:
    """Token ids of real text, from which prompts are cut."""

    def __init__(self, token_ids: Sequence[int], context_limit: int) -> None:
        self._token_ids = tuple(token_ids)
        self._limit = context_limit

    @classmethod
    async def read(cls, client: LoadClient) -> "Corpus":
        """The held-out prompts of the embedded pair, in the served model's tokens."""
        entries = json.loads((EMBEDDED / "heldout_prompts.json").read_text())
        text = "\n\n".join(entry["prompt"] if isinstance(entry, dict) else entry for entry in entries)
        info = await client.model()
        return cls(await client.tokenize(text[:16_000]), info.context_limit)

    def cut(self, source: random.Random, length: int) -> tuple[int, ...]:
        """`length` tokens from somewhere; the text is repeated when it is too short."""
        length = max(1, min(length, self._limit // 2))
        start = source.randrange(len(self._token_ids))
        repeated = self._token_ids[start:] + self._token_ids * (1 + length // len(self._token_ids))
        return repeated[:length]

    def asks(self, mix: Mix, count: int, seed: int) -> list[Ask]:
        """`count` requests of a mix."""
        source = random.Random(f"{mix.name} {seed}")
        prefixes = [self.cut(source, mix.shared) if mix.shared else () for _ in range(mix.groups)]
        asks = []
        for number in range(count):
            ids = source.choice(prefixes) + self.cut(source, source.choice(mix.prompts))
            tokens = min(source.choice(mix.outputs), self._limit - len(ids))
            asks.append(Ask(ids, tokens, seed=seed * 10_000 + number))
        return asks


def poisson_arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds at which `count` requests arrive, `rate` a second on average, independent of each other."""
    source = random.Random(seed)
    now, arrivals = 0.0, []
    for _ in range(count):
        now += source.expovariate(rate)
        arrivals.append(now)
    return arrivals
