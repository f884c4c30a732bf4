"""What a long prompt adds to the gaps between the tokens of streams that run beside it."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.load import Load, TimedClient, begin, frames_of, random_prompt, usual_prompt
from tests.bench.gpu.pair import ServedPair
from tests.bench.load.records import percentile
from tests.support.session_client import start

Row = dict[str, Any]
STREAMS, REPEATS = 8, 5


async def gap_rows(pair: ServedPair, prompt: int) -> list[Row]:
    """One row for drafted streams, one for plain ones."""
    pair.switch("vllm")
    widest = pair.settings.widths[-1] - 1
    rows = []
    async with TimedClient(pair.address) as client:
        for draft, tokens in ((widest, 1000), (0, 200)):
            load = Load(STREAMS, usual_prompt(pair.settings.context_limit), tokens, draft, salt="gap")
            found = [await _gaps(pair, client, load, prompt, repeat) for repeat in range(REPEATS)]
            rows.append(_row(draft, prompt, found))
    return rows


async def _gaps(
    pair: ServedPair, client: TimedClient, load: Load, length: int, repeat: int
) -> tuple[list[float], list[float], float]:
    """Gaps of all streams before the prompt came, while it was prefilled, and the time to its first token."""
    vocab = pair.settings.shape.vocab
    streams = await begin(client, frames_of(load, vocab))
    for stream in streams:
        await stream.at_least(load.tokens // 4)
    sent = time.perf_counter()
    name = f"long-{repeat}-{load.draft}"
    ids = random_prompt(7 * repeat + (load.draft or 0), length, vocab)
    long = await client.start(start(name, ids, 2, sampling=types.Sampling(), tenant_salt=name.encode()))
    await long.at_least(1)
    first = next(arrival.at for arrival in client.arrivals if name in arrival.tokens)
    for stream in (*streams, long):
        await stream.ended()
    before: list[float] = []
    during: list[float] = []
    for stream_name in {key for arrival in client.arrivals for key in arrival.tokens} - {name}:
        times = [arrival.at for arrival in client.arrivals if stream_name in arrival.tokens]
        for early, late in pairwise(times[1:]):
            if late <= sent:
                before.append(late - early)
            elif late <= first + 1e-9:
                during.append(late - early)
    return before, during, first - sent


def _row(draft: int, prompt: int, found: list[tuple[list[float], list[float], float]]) -> Row:
    usual = statistics.median(gap for before, _, _ in found for gap in before)
    added = [max(gap - usual, 0.0) for _, during, _ in found for gap in during]
    return {
        "step": "gap",
        "mode": "fixed" if draft else "plain",
        "streams": STREAMS,
        "prompt": prompt,
        "gaps": len(added),
        "usual_ms": round(usual * 1e3, 2),
        "added_p50_ms": round(percentile(added, 0.5) * 1e3, 2),
        "added_p99_ms": round(percentile(added, 0.99) * 1e3, 2),
        "added_max_ms": round(max(added, default=0.0) * 1e3, 2),
        "first_token_ms": round(statistics.median(first_s for _, _, first_s in found) * 1e3, 1),
        "bar_p99_ms": 60,
    }
