"""The measurements: curves over concurrency, arrivals, mixes and a conversation."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from tests.bench.load.client import Ask, LoadClient
from tests.bench.load.drive import closed_loop, conversation, open_loop
from tests.bench.load.pairs import Mode
from tests.bench.load.records import Objective, Record, summary
from tests.bench.load.workload import MIXES, SHORT, Corpus, poisson_arrivals

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    concurrencies: tuple[int, ...] = (1, 4, 16)
    alternations: int = 5
    tokens: int = 96
    rate: float = 3.0
    arrivals: int = 40
    requests: int = 24
    turns: int = 6
    seed: int = 20_260_101


class Budget:
    """Time for everything; a slow machine measures less instead of taking longer."""

    def __init__(self, seconds: float) -> None:
        self._begun = perf_counter()
        self._seconds = seconds

    def left(self, share: float = 1.0) -> bool:
        """Whether less than this share of the time has passed."""
        return perf_counter() - self._begun < share * self._seconds


async def curve(
    clients: Mapping[str, LoadClient],
    modes: Sequence[Mode],
    corpus: Corpus,
    sizes: Sizes,
    budget: Budget,
    say: Progress,
) -> list[dict[str, Any]]:
    """Tokens per second of every mode at every concurrency; modes take turns, so that drift hits all alike."""
    rows = []
    objective = Objective()
    for index, concurrency in enumerate(sizes.concurrencies):
        share = 0.6 * (index + 1) / len(sizes.concurrencies)
        speeds: dict[str, list[float]] = {mode.name: [] for mode in modes}
        taken: dict[str, list[Record]] = {mode.name: [] for mode in modes}
        for turn in range(sizes.alternations + 1):
            prompts = [ask.token_ids for ask in corpus.asks(SHORT, concurrency, sizes.seed + turn)]
            shift = turn % len(modes)
            for mode in (*modes[shift:], *modes[:shift]):
                asks = [Ask(ids, sizes.tokens, speculate=mode.speculate) for ids in prompts]
                records = await closed_loop(clients[mode.pair], asks, concurrency)
                if turn:
                    speeds[mode.name].append(summary(records, objective)["tok_s"])
                    taken[mode.name] += records
            say(f"c={concurrency} turn {turn}/{sizes.alternations}")
            if turn and not budget.left(share):
                break
        rows += _rows(concurrency, speeds, taken)
    return rows


def _rows(
    concurrency: int, speeds: Mapping[str, Sequence[float]], taken: Mapping[str, Sequence[Record]]
) -> list[dict[str, Any]]:
    medians = {name: median(values) for name, values in speeds.items()}
    others = {name: value for name, value in medians.items() if name != "adaptive"}
    best = max(others, key=others.__getitem__)
    rows: list[dict[str, Any]] = []
    for name, values in speeds.items():
        ratios = sorted(value / other for value, other in zip(values, speeds[best], strict=True))
        figures = summary(taken[name], Objective())
        widths: dict[int, int] = {}
        for record in taken[name]:
            for width, rounds in record.rounds_by_width.items():
                widths[width] = widths.get(width, 0) + rounds
        row: dict[str, Any] = {"concurrency": concurrency, "mode": name, "tok_s": round(medians[name], 2)}
        row |= {
            "turns": len(values),
            "against": best,
            "ratio": round(median(ratios), 4),
            "ratio_low": round(ratios[0], 4),
        }
        row |= {"ratio_high": round(ratios[-1], 4), "rounds_by_width": {str(w): widths[w] for w in sorted(widths)}}
        row |= {key: figures[key] for key in ("errors", "tau", "ttft_ms_p50", "gap_ms_p50", "gap_ms_p95", "gap_ms_p99")}
        rows.append(row)
    return rows


async def mixes(
    client: LoadClient, corpus: Corpus, sizes: Sizes, budget: Budget, say: Progress
) -> list[dict[str, Any]]:
    """A closed loop of four for every mix of lengths, and Poisson arrivals of the mixed one."""
    rows: list[dict[str, Any]] = []
    for mix in MIXES.values():
        if not budget.left():
            say(f"out of time: mix {mix.name} left out")
            continue
        say(f"closed loop, mix {mix.name}")
        records = await closed_loop(client, corpus.asks(mix, sizes.requests, sizes.seed), 4)
        rows.append({"loop": "closed", "mix": mix.name, "concurrency": 4, **summary(records, Objective())})
    if not budget.left():
        say("out of time: the open loop is left out")
        return rows
    say(f"open loop, {sizes.rate} requests a second")
    asks = corpus.asks(MIXES["mixed"], sizes.arrivals, sizes.seed + 1)
    records = await open_loop(client, asks, poisson_arrivals(sizes.rate, sizes.arrivals, sizes.seed))
    rows.append({"loop": "open", "mix": "mixed", "rate": sizes.rate, **summary(records, Objective())})
    return rows


async def replay(client: LoadClient, corpus: Corpus, sizes: Sizes, say: Progress) -> list[dict[str, Any]]:
    """A conversation; from the second turn on, nearly all of the prompt should come from the prefix cache."""
    say(f"a conversation of {sizes.turns} turns")
    source = random.Random(sizes.seed)
    follow_ups = [corpus.cut(source, 40) for _ in range(sizes.turns - 1)]
    records = await conversation(client, corpus.cut(source, 200), follow_ups, 64)
    return [
        {
            "turn": number + 1,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "prefill_ms": round(record.prefill_s * 1e3, 2),
            "decode_ms": round(record.decode_s * 1e3, 2),
            "wall_ms": round((record.ended - record.sent) * 1e3, 2),
            "error": record.error,
        }
        for number, record in enumerate(records)
    ]
