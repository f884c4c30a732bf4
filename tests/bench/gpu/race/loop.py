"""A closed loop with refill: where a request has ended the next one starts, until the time is over."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.load import TimedClient, random_prompt, speculation_of
from tests.bench.gpu.race.plan import LEAD_S, PROMPT, Job
from tests.bench.gpu.race.rows import Measured, Repeat
from tests.support.session_client import start

POOL = 256
"""Prompts that are made before the loop, and taken in turn."""


def lengths_of(longest: int) -> Iterator[int]:
    """Tokens of each request in turn, from a quarter of the longest on, so that ends lie apart; vLLM's are the same."""
    source = random.Random(longest)
    while True:
        yield source.randint(longest // 4, longest)


@dataclass
class _Loop:
    """What all places of a loop share; `began` and `until` are of `perf_counter`."""

    client: TimedClient
    job: Job
    prompts: list[list[int]]
    lengths: Iterator[int]
    began: float
    until: float
    numbers: Iterator[int] = field(default_factory=itertools.count)
    started: dict[str, float] = field(default_factory=dict)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def place(self) -> None:
        """One place: request after request."""
        while time.perf_counter() < self.until:
            number = next(self.numbers)
            name = f"{self.began}-{number}"
            frame = start(
                name,
                self.prompts[number % len(self.prompts)],
                next(self.lengths),
                sampling=types.Sampling(temperature=0.0, seed=number),
                speculation=speculation_of(self.job.k),
                # No request finds another one's prompt.
                tenant_salt=name.encode(),
            )
            self.started[name] = time.perf_counter()
            async with self.writing:  # a call takes one message at a time
                received = await self.client.start(frame)
            await received.ended()


async def looped(client: TimedClient, job: Job, vocab: int) -> Measured:
    """Run the loop; tokens count that come in `job.seconds` after LEAD_S, and streams that begin then."""
    prompts = [random_prompt(index, PROMPT, vocab) for index in range(POOL)]
    client.arrivals.clear()
    began = time.perf_counter()
    first, last = began + LEAD_S, began + LEAD_S + job.seconds
    loop = _Loop(client, job, prompts, lengths_of(job.out), began, last)
    await asyncio.gather(*(loop.place() for _ in range(job.concurrency)))
    streams: dict[str, list[tuple[float, int]]] = {}
    tokens = 0
    for arrival in client.arrivals:
        for name, count in arrival.tokens.items():
            tokens += count if first <= arrival.at < last else 0
            if first <= loop.started.get(name, 0.0):
                streams.setdefault(name, []).append((arrival.at - loop.started[name], count))
    ahead = time.monotonic() - time.perf_counter()
    repeat = Repeat(first + ahead, last + ahead, 0.0, tokens)
    return Measured((repeat,), tuple(tuple(stream) for stream in streams.values()))
