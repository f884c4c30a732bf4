"""Decode speed as vLLM measured it: its schedules of acceptance, all requests at once, prefill taken off."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

from tests.bench.gpu.load import Load, Run, TimedClient, run, usual_prompt
from tests.bench.gpu.pair import ServedPair
from tests.bench.gpu.recorded import records_of, rounds_of

Row = dict[str, Any]
REPEATS = 3
ANSWERS = {
    (1, 0): 278, (8, 0): 2057, (32, 0): 7056, (64, 0): 11575, (128, 0): 17750,
    (1, 15): 1439, (8, 15): 8551, (32, 15): 17683, (64, 15): 18176, (128, 15): 20752,
    (1, 7): 1154, (8, 7): 7612, (32, 7): 20240, (64, 7): 25962, (128, 7): 22654,
    (1, 3): 721, (8, 3): 4877, (32, 3): 16362, (64, 3): 23410, (128, 3): 28606,
}  # fmt: skip
"""Tokens per second of vLLM 0.26.0 on one H200 by (concurrency, K): the same shapes and loads."""


async def vllm_rows(pair: ServedPair, concurrencies: Sequence[int], plain: Sequence[int], tokens: int) -> list[Row]:
    """Every width at every concurrency, plain where asked."""
    pair.switch("vllm")
    rows = []
    async with TimedClient(pair.address) as client:
        for width in reversed(pair.settings.widths):
            for concurrency in concurrencies if width > 1 else plain:
                prompt = usual_prompt(pair.settings.context_limit)
                load = Load(concurrency, prompt, tokens, draft=width - 1)
                rows.append({"mode": "fixed" if width > 1 else "plain"} | await _row(pair, client, load, width - 1))
    return rows


async def chosen_rows(pair: ServedPair, concurrencies: Sequence[int], tokens: int) -> list[Row]:
    """The same loads under each of vLLM's schedules: the width left to the target, and the next narrower one."""
    rows = []
    async with TimedClient(pair.address) as client:
        for narrower, width in reversed(list(pairwise(pair.settings.widths))):
            pair.switch(f"K{width - 1}")
            for concurrency, fixed in product(concurrencies, (None, narrower - 1)):
                if fixed == 0:
                    continue
                load = Load(concurrency, usual_prompt(pair.settings.context_limit), tokens, draft=fixed)
                row = {"mode": "adaptive" if fixed is None else "fixed", "schedule_k": width - 1}
                row |= await _row(pair, client, load, width - 1)
                records = records_of(pair.describe(), client.arrivals)
                rows.append(row | {"widths": dict(sorted(Counter(record.width for record in records).items()))})
    return rows


async def _row(pair: ServedPair, client: TimedClient, load: Load, drafts: int) -> Row:
    """(tokens - c) / (total - prefill), prefill being a run of the same prompts with one token each; the median.

    `drafts` is the K that vLLM had under this schedule.
    """
    vocab, count = pair.settings.shape.vocab, load.concurrency
    await run(client, Load(count, load.prompt, 8, load.draft), vocab)
    runs: list[tuple[float, Run]] = []
    for _ in range(REPEATS):
        first = await run(client, Load(count, load.prompt, 1, load.draft), vocab)
        runs.append((first.seconds, await run(client, load, vocab)))
    speeds = [(whole.tokens - count) / (whole.seconds - first_s) for first_s, whole in runs]
    taus = [(whole.tokens - count) / max(1, sum(whole.rounds)) for _, whole in runs]
    micros = [(whole.seconds - first_s) / max(1, *whole.rounds) * 1e6 for first_s, whole in runs]
    speed, answer = statistics.median(speeds), ANSWERS.get((count, drafts))
    best = max(theirs for (theirs_at, _), theirs in ANSWERS.items() if theirs_at == count) if answer else None
    return {
        "system": "paceline",
        "schedule": "vllm",
        "concurrency": count,
        "context": load.prompt,
        "k": load.draft,
        "tau": round(statistics.median(taus), 2),
        "decode_tok_s": round(speed, 1),
        "decode_tok_s_all": [round(one, 1) for one in speeds],
        "prefill_s": round(statistics.median(first_s for first_s, _ in runs), 3),
        "round_us": round(statistics.median(micros), 1),
        **rounds_of(pair.describe(), runs[-1][1].steady(), load.concurrency),
        "vllm_tok_s": answer,
        "times_vllm": round(speed / answer, 3) if answer else None,
        "times_best_vllm": round(speed / best, 3) if best else None,
        "text_sha256": runs[-1][1].digest,
    }
