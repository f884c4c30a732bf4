"""Adaptive width against plain and every fixed width, alternating on one pair, under one profile of acceptance.

Speeds count expected tokens: each round of the steady part counts what its width accepts on average under the profile.
Widths and times are real; only the random part of acceptance, which the benchmark draws, is replaced by its mean. All
prompts are prefix hits, so that all streams of a run start in one round. `whole` speeds count the tokens that came,
from the last first token to the end of the last stream: with few tokens a stream the ends take a good part of a load.
Each alternation draws anew, all modes of it alike: else luck with one width would be the same in every run. Medians of
few such loads tell of luck. So speeds of all loads together are told too, and those of each.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tests.bench.gpu.load import Load, TimedClient, run, usual_prompt
from tests.bench.gpu.medians import interval
from tests.bench.gpu.pair import ServedPair
from tests.bench.gpu.recorded import records_of
from tests.bench.gpu.shapes import PROFILES, expected_tokens

Row = dict[str, Any]
ADAPTIVE, PLAIN = "adaptive", "plain"
FAR_BEHIND = 0.9
"""A fixed width that is below this share of the best one after two alternations is not run again."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Most alternations, seconds of a whole profile, and the output of a stream."""

    alternations: int = 8
    seconds: float = 110.0
    tokens: int = 128


@dataclass(slots=True)
class Series:
    """What one mode reached, one entry for each alternation."""

    draft: int | None
    speeds: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    micros: list[float] = field(default_factory=list)
    widths: Counter[int] = field(default_factory=Counter)

    @property
    def median(self) -> float:
        """Median speed."""
        return statistics.median(self.speeds)

    @property
    def whole_together(self) -> float:
        """Tokens of all loads by their time: each has as many."""
        return statistics.harmonic_mean(self.whole)


async def adaptive_rows(pair: ServedPair, profile: str, concurrencies: Sequence[int], budget: Budget) -> list[Row]:
    """A row for each mode and concurrency; the adaptive one holds the ratios."""
    pair.switch(profile)
    rows: list[Row] = []
    # A run of 128 requests takes about twice as long as that of one. What one does not need the next ones have.
    weights = [100 + concurrency for concurrency in concurrencies]
    begun = time.monotonic()
    async with TimedClient(pair.address) as client:
        for concurrency, until in zip(concurrencies, accumulate(weights), strict=True):
            end = begun + budget.seconds * until / sum(weights)
            rows += await _at(pair, client, profile, concurrency, budget, end)
    return rows


async def _at(
    pair: ServedPair, client: TimedClient, profile: str, concurrency: int, budget: Budget, end: float
) -> list[Row]:
    widths = pair.settings.widths
    series = {PLAIN: Series(0)}
    series |= {f"w{width}": Series(width - 1) for width in widths if width > 1}
    series[ADAPTIVE] = Series(None)
    # Uncounted: fills the prefix cache, and the policy meets this bucket for the first time.
    await run(client, _load(pair, concurrency, budget.tokens, None), pair.settings.shape.vocab)
    running, done, dropped = list(series), 0, []
    while done < budget.alternations and (done < 2 or time.monotonic() < end):
        for name in (*running[done % len(running) :], *running[: done % len(running)]):
            load = _load(pair, concurrency, budget.tokens, series[name].draft, done)
            await _measure(pair, client, profile, load, series[name])
        done += 1
        if done == 2:
            dropped = _far_behind(series)
            running = [name for name in running if name not in dropped]
    context = usual_prompt(pair.settings.context_limit)
    return _rows(profile, concurrency, context, series, dropped)


async def _measure(pair: ServedPair, client: TimedClient, profile: str, load: Load, series: Series) -> None:
    done = await run(client, load, pair.settings.shape.vocab)
    seen = done.steady()
    seconds = seen[-1].at - seen[0].at
    width_of = {record.number: record.width for record in records_of(pair.describe(), seen[1:])}
    assert len(width_of) == len(seen) - 1, "the recorder holds every round of the steady part"
    rates = PROFILES[profile]
    expected = sum(expected_tokens(rates, width) for width in width_of.values()) * load.concurrency
    series.speeds.append(expected / seconds)
    series.raw.append(sum(sum(arrival.tokens.values()) for arrival in seen[1:]) / seconds)
    behind = [arrival for arrival in done.arrivals if arrival.at > seen[0].at]
    series.whole.append(sum(sum(arrival.tokens.values()) for arrival in behind) / (behind[-1].at - seen[0].at))
    series.micros.append(seconds / len(width_of) * 1e6)
    series.widths.update(width_of.values())


def _load(pair: ServedPair, concurrency: int, tokens: int, draft: int | None, draws: int = 0) -> Load:
    return Load(concurrency, usual_prompt(pair.settings.context_limit), tokens, draft, "alternating", draws)


def _far_behind(series: dict[str, Series]) -> list[str]:
    fixed = {name: one.median for name, one in series.items() if name not in (PLAIN, ADAPTIVE)}
    return [name for name, speed in fixed.items() if speed < FAR_BEHIND * max(fixed.values())]


def _rows(profile: str, concurrency: int, context: int, series: dict[str, Series], dropped: Sequence[str]) -> list[Row]:
    rows = []
    for name, one in series.items():
        rows.append({
            "system": "paceline",
            "mode": name if name in (PLAIN, ADAPTIVE) else "fixed",
            "schedule": profile,
            "concurrency": concurrency,
            "context": context,
            "k": one.draft,
            "decode_tok_s": round(one.median, 1),
            "counted_tok_s": round(statistics.median(one.raw), 1),
            "whole_tok_s": round(statistics.median(one.whole), 1),
            "whole_together_tok_s": round(one.whole_together, 1),
            "whole_all": [round(speed, 1) for speed in one.whole],
            "round_us": round(statistics.median(one.micros), 1),
            "alternations": len(one.speeds),
            "rounds": sum(one.widths.values()),
            "widths": dict(sorted(one.widths.items())),
            "dropped_after_two": name in dropped,
        })  # fmt: skip
    fixed = {name: one for name, one in series.items() if name not in (PLAIN, ADAPTIVE, *dropped)}
    best = max(fixed, key=lambda name: fixed[name].median)
    reference = series[best] if fixed[best].median > series[PLAIN].median else series[PLAIN]
    adaptive, plain = series[ADAPTIVE].speeds, series[PLAIN].speeds
    against_best = [one / other for one, other in zip(adaptive, reference.speeds, strict=True)]
    against_plain = [one / other for one, other in zip(adaptive, plain, strict=True)]
    whole = {name: statistics.median(one.whole) for name, one in series.items()}
    best_whole = max((name for name in whole if name != ADAPTIVE), key=whole.__getitem__)
    together = {name: series[name].whole_together for name in (*fixed, PLAIN)}
    best_together = max(together, key=together.__getitem__)
    rows[-1] |= {
        "best": best if reference is series[best] else PLAIN,
        "against_best": interval(against_best),
        "against_plain": interval(against_plain),
        "best_whole": best_whole,
        "regret_whole": round(1.0 - whole[ADAPTIVE] / whole[best_whole], 4),
        "best_together": best_together,
        "regret_together": round(1.0 - series[ADAPTIVE].whole_together / together[best_together], 4),
        "best_fixed_against_plain": round(fixed[best].median / series[PLAIN].median, 3),
    }
    return rows
