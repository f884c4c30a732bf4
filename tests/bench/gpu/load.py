"""Requests that start at once, and when each round of theirs arrived."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.support.session_client import Received, SessionClient, start


@dataclass(frozen=True, slots=True)
class Load:
    """`concurrency` prompts of random tokens at once, no refill, greedy.

    Drafts of `draft` tokens pin the width, 0 is plain and None leaves it to the target. Runs of one `salt` find each
    other's prompts in the prefix cache; without one none does. What synthetic acceptance draws differs by `draws`.
    """

    concurrency: int
    prompt: int = 512
    tokens: int = 128
    draft: int | None = None
    salt: str = ""
    draws: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One round's news: when it came, its number, and the tokens of each stream in it."""

    at: float
    number: int
    tokens: dict[str, int]
    ended: frozenset[str]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one load."""

    seconds: float
    received: list[Received]
    arrivals: list[Arrival]

    @property
    def tokens(self) -> int:
        """Tokens of all streams."""
        return sum(len(one.tokens) for one in self.received)

    @property
    def rounds(self) -> list[int]:
        """Rounds of each stream after its first token."""
        return [one.end.speculation.rounds for one in self.received]

    @property
    def digest(self) -> str:
        """sha256 of all texts."""
        return hashlib.sha256(repr([one.tokens for one in self.received]).encode()).hexdigest()

    def steady(self) -> list[Arrival]:
        """Rounds in which all streams decoded and none ended, led by the one that brought the last first token."""
        waiting = len(self.received)
        seen: set[str] = set()
        begin = 0
        for index, arrival in enumerate(self.arrivals):
            seen.update(arrival.tokens)
            if len(seen) == waiting:
                begin = index
                break
        ends = (index for index, arrival in enumerate(self.arrivals) if arrival.ended)
        return self.arrivals[begin : next(ends)]


class TimedClient(SessionClient):
    """A session that notes when each round with news came."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.arrivals: list[Arrival] = []

    async def _frames(self) -> AsyncIterator[pb.SessionResponse]:
        async for frame in super()._frames():
            if frame.round.updates:
                self.arrivals.append(_arrival(frame.round))
            yield frame


async def begin(client: TimedClient, frames: Sequence[pb.Start]) -> list[Received]:
    """Starts all, and forgets what came before."""
    client.arrivals.clear()
    client.rounds.clear()
    client.requests.clear()
    return [await client.start(frame) for frame in frames]


async def run(client: TimedClient, load: Load, vocab: int) -> Run:
    """Starts all, waits for all."""
    frames = frames_of(load, vocab)
    began = time.perf_counter()
    received = await begin(client, frames)
    await asyncio.gather(*(one.ended() for one in received))
    return Run(time.perf_counter() - began, received, list(client.arrivals))


def usual_prompt(context_limit: int) -> int:
    """512 tokens, or what a small model has room for."""
    return min(512, context_limit // 4)


def random_prompt(seed: int, length: int, vocab: int) -> list[int]:
    """Token ids that depend on the seed alone."""
    return random.Random(seed).choices(range(2, vocab), k=length)


def speculation_of(draft: int | None) -> types.Speculation:
    """What a request asks for; see Load."""
    if draft is None:
        return types.Speculation()
    return types.Speculation(off=True) if draft == 0 else types.Speculation(max_draft=draft)


def frames_of(load: Load, vocab: int) -> list[pb.Start]:
    """What a load sends."""
    stamp = f"{time.monotonic_ns()}"
    return [
        start(
            f"{stamp}-{index}",
            random_prompt(1000 * load.concurrency + index, load.prompt, vocab),
            load.tokens,
            # Synthetic acceptance draws by it: requests of one length must not all accept alike.
            sampling=types.Sampling(temperature=0.0, seed=1_000_000 * load.draws + 1000 * load.concurrency + index),
            speculation=speculation_of(load.draft),
            tenant_salt=(load.salt or stamp).encode(),
        )
        for index in range(load.concurrency)
    ]


def _arrival(round_: pb.Round) -> Arrival:
    tokens = {update.request_id: len(update.token_ids) for update in round_.updates if update.token_ids}
    ended = frozenset(update.request_id for update in round_.updates if update.HasField("end"))
    return Arrival(time.perf_counter(), round_.number, tokens, ended)
