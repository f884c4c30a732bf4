"""Decode speed by context length: plain, every width and the target's own choice, at one schedule of acceptance."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from tests.bench.gpu.load import Load, Run, TimedClient, run
from tests.bench.gpu.pair import ServedPair
from tests.bench.gpu.recorded import rounds_of

Row = dict[str, Any]
SCHEDULE, REPEATS = "K15", 3


async def context_rows(
    pair: ServedPair, contexts: Sequence[int], concurrencies: Sequence[int], tokens: int
) -> list[Row]:
    """A row for each context, concurrency and mode; prompts are found in the prefix cache, so all decode together."""
    pair.switch(SCHEDULE)
    rows = []
    async with TimedClient(pair.address) as client:
        for context, count in product(contexts, concurrencies):
            await run(client, _load(context, count, 8, None), pair.settings.shape.vocab)
            drafts = (*(width - 1 for width in pair.settings.widths), None)
            rows += [await _row(pair, client, _load(context, count, tokens, draft)) for draft in drafts]
    return rows


async def _row(pair: ServedPair, client: TimedClient, load: Load) -> Row:
    runs = [await run(client, load, pair.settings.shape.vocab) for _ in range(REPEATS)]
    rounds = rounds_of(pair.describe(), runs[-1].steady(), load.concurrency)
    return {
        "system": "paceline",
        "mode": {None: "adaptive", 0: "plain"}.get(load.draft, "fixed"),
        "schedule": SCHEDULE,
        "concurrency": load.concurrency,
        "context": load.prompt,
        "k": load.draft,
        "decode_tok_s": round(statistics.median(_speed(one) for one in runs), 1),
        "tau": round(statistics.median(_tau(one) for one in runs), 2),
        "round_us": rounds["steady_round_us"],
        **rounds,
        "text_sha256": runs[-1].digest,
    }


def _load(context: int, count: int, tokens: int, draft: int | None) -> Load:
    return Load(count, context, tokens, draft, salt="contexts")


def _speed(whole: Run) -> float:
    """Tokens per second of the rounds in which all decode."""
    first, *rest = whole.steady()
    return sum(sum(arrival.tokens.values()) for arrival in rest) / (rest[-1].at - first.at)


def _tau(whole: Run) -> float:
    """Tokens a round of one stream, first tokens left out."""
    return (whole.tokens - len(whole.received)) / max(1, sum(whole.rounds))
