"""paceline's side of the race: a pair of processes under MPS, loaded as in all of this benchmark."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.gpu.load import Load, Run, TimedClient, run
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.race.loop import looped
from tests.bench.gpu.race.plan import PROMPT, SCHEDULES, Job, Leg, repeats_of
from tests.bench.gpu.race.rows import Drafter, Measured, Repeat
from tests.bench.gpu.race.theirs import ROUTED
from tests.bench.gpu.rig import RigSettings


def paceline_leg(leg: Leg, settings: RigSettings, drafter: Drafter, flags: Sequence[str] = ()) -> list[Measured]:
    """Start a pair with such a drafter and flags of the target, and run the leg's jobs in order."""
    with Mps(settings.device == "cuda") as environment, tempfile.TemporaryDirectory(prefix="pl") as folder:
        options = PairOptions(
            environment=environment,
            drafter_weights=drafter.weights,
            short_blocks=drafter.short_blocks,
            flags=tuple(flags),
            routes="even" if settings.family in ROUTED else "own",  # as a peer's are drawn
        )
        with ServedPair(settings, Path(folder), options) as pair:
            return asyncio.run(_run(leg, pair))


async def _run(leg: Leg, pair: ServedPair) -> list[Measured]:
    async with TimedClient(pair.address) as client:
        measured = []
        for job in leg.jobs:
            if job.profile is not None:
                pair.switch(SCHEDULES[job.profile])
            run_ = looped if job.seconds else _measured
            measured.append(await run_(client, job, pair.settings.shape.vocab))
        return measured


async def _measured(client: TimedClient, job: Job, vocab: int) -> Measured:
    await run(client, load_of(job, 8), vocab)
    repeats, streams = [], []
    for repeat in range(repeats_of(job.concurrency)):
        prompts = await run(client, load_of(job, 1), vocab)
        whole = await run(client, load_of(job, job.out, repeat), vocab)
        ended = time.monotonic()
        repeats.append(Repeat(ended - whole.seconds, ended, prompts.seconds, whole.tokens))
        streams += streams_of(whole, time.perf_counter() - whole.seconds)
    return Measured(tuple(repeats), tuple(streams))


def load_of(job: Job, tokens: int, repeat: int = 0) -> Load:
    """Return a load of the job; each repeat draws anew what it accepts, as the peer's does."""
    return Load(job.concurrency, PROMPT, tokens, job.k, draws=repeat)


def streams_of(whole: Run, began: float) -> list[tuple[tuple[float, int], ...]]:
    """Return when each stream's tokens arrived since the load began, and how many."""
    streams: dict[str, list[tuple[float, int]]] = {}
    for arrival in whole.arrivals:
        for request, count in arrival.tokens.items():
            streams.setdefault(request, []).append((arrival.at - began, count))
    return [tuple(stream) for stream in streams.values()]
