"""Sends requests: a fixed number at a time (closed loop), or when they arrive whatever is going on (open loop)."""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from tests.bench.load.client import Ask, LoadClient
from tests.bench.load.records import Record


async def closed_loop(client: LoadClient, asks: Sequence[Ask], concurrency: int) -> list[Record]:
    """Keeps `concurrency` requests going until all have been sent and have ended."""
    waiting = list(reversed(asks))
    records: list[Record] = []

    async def worker() -> None:
        while waiting:
            records.append(await client.run(waiting.pop()))

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return records


async def open_loop(client: LoadClient, asks: Sequence[Ask], arrivals: Sequence[float]) -> list[Record]:
    """Sends each request at its time of arrival; a slow server does not slow the arrivals down."""
    begun = perf_counter()

    async def one(ask: Ask, at_s: float) -> Record:
        await asyncio.sleep(max(0.0, begun + at_s - perf_counter()))
        return await client.run(ask)

    return list(await asyncio.gather(*(one(ask, at_s) for ask, at_s in zip(asks, arrivals, strict=True))))


async def conversation(
    client: LoadClient, first: Sequence[int], follow_ups: Sequence[Sequence[int]], tokens: int
) -> list[Record]:
    """Turns of a chat: each prompt is everything said so far and a few new tokens."""
    records: list[Record] = []
    history = tuple(first)
    for number, addition in enumerate(((), *follow_ups)):
        history += tuple(addition)
        record = await client.run(Ask(history, tokens, seed=number))
        history += tuple(record.token_ids)
        records.append(record)
    return records
