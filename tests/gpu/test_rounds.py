"""Ten thousand rounds of mixed requests, 1 token to 32k of context: nothing is captured, nothing allocated (I4)."""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.load import random_prompt
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import TINY
from tests.gpu.memory import used_bytes
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.support.session_client import SessionClient, start

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SLOTS, WARM_ROUNDS, ROUNDS, LONGEST = 16, 1500, 10_000, 32_000
SAMPLINGS = (
    types.Sampling(temperature=0.0),
    types.Sampling(temperature=0.8, top_p=0.95, seed=3),
    types.Sampling(temperature=1.0, top_k=20, presence_penalty=0.5, repetition_penalty=1.1, seed=4),
)
SPECULATIONS = (types.Speculation(), types.Speculation(off=True), *(types.Speculation(max_draft=k) for k in (3, 7, 15)))


class Mix:
    """Random requests for ever; a fifth of them is cancelled, one in forty is as long as the context allows."""

    def __init__(self, client: SessionClient, vocab: int) -> None:
        self._client, self._vocab, self._dice = client, vocab, random.Random(11)
        self._writing = asyncio.Lock()
        self._started = 0
        self.ended = self.cancelled = 0

    async def follow_one(self) -> None:
        """Starts a request and stays until it has ended."""
        self._started += 1
        dice, name = self._dice, f"r{self._started}"
        length = LONGEST if self._started % 40 == 1 else dice.choice((1, 2, 17, 100, 700, 3000))
        logprobs = 2 if dice.random() < 0.2 else None
        frame = start(
            name,
            random_prompt(self._started, length, self._vocab),
            dice.randrange(1, 400),
            sampling=dice.choice(SAMPLINGS),
            speculation=dice.choice(SPECULATIONS),
            logprobs=logprobs,
        )
        async with self._writing:
            stream = await self._client.start(frame)
        if dice.random() < 0.2:
            await stream.at_least(dice.randrange(1, 40))
            if not stream.ends:
                self.cancelled += 1
                async with self._writing:
                    await self._client.cancel(name, len(stream.tokens))
        await stream.ended()
        self.ended += 1
        del self._client.requests[name]


async def rounds(pair: ServedPair, count: int, streams: int) -> Mix:
    """Keeps so many requests live until the target has run `count` more rounds."""
    async with SessionClient(pair.address) as client:
        mix = Mix(client, pair.settings.shape.vocab)
        live: set[asyncio.Task[None]] = set()
        first = last = -1
        while last - first < count:
            live |= {asyncio.create_task(mix.follow_one()) for _ in range(streams - len(live))}
            done, live = await asyncio.wait(live, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            numbers = [round_.number for round_ in client.rounds]
            client.rounds.clear()
            last = max(numbers, default=last)
            first = last if first < 0 else first
        await asyncio.gather(*live)
        return mix


def counted(description: pb.TargetServiceDescribeResponse) -> tuple[int, int, int]:
    graphs = description.graphs
    return graphs.captures, graphs.recaptures, graphs.reallocations


async def test_nothing_is_captured_or_allocated_in_ten_thousand_rounds() -> None:
    shape = replace(TINY, context=40960)
    dtype = "bfloat16" if DEVICE == "cuda" else "float32"
    settings = RigSettings(shape, DEVICE, dtype, SLOTS, (1, 4, 8, 16), LONGEST + 512, 4 << 30, 2048)
    with tempfile.TemporaryDirectory(prefix="pl") as folder, ServedPair(settings, Path(folder), PairOptions()) as pair:
        await rounds(pair, WARM_ROUNDS, SLOTS + 4)
        before, used = counted(pair.describe()), used_bytes()
        mix = await rounds(pair, ROUNDS, SLOTS + 4)
        after, growth = counted(pair.describe()), used_bytes() - used
        print(f"{mix.ended} requests, {mix.cancelled} cancelled, captures {before} -> {after}, growth {growth} bytes")
        assert mix.ended > 100
        assert mix.cancelled > 10
        assert after == before
        assert growth <= 0
