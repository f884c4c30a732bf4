"""Host time of a round without a model, and the meter's part in it: `python -m tests.bench.engine`.

An engine over the fake runner speculates for 1 and for 8 requests. The meter's part is its time inside those rounds.
"""

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from services.target.core.commands import Attach
from services.target.engine.engine import Engine
from services.target.engine.meter import Meter
from tests.support.fakes_runner import FakeRunner
from tests.unit.target.core.specs import prompt, request
from tests.unit.target.engine.engine_rig import ScriptedDrafts, rig

VOCAB, TOKENS = 97, 100


class Stopwatch:
    """Adds up the seconds that calls took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., None]) -> Callable[..., None]:
        """The same call, with its time added."""

        def measured(*args: Any) -> None:
            start = perf_counter()
            call(*args)
            self.seconds += perf_counter() - start

        return measured


def timed_meter(engine: Engine, watch: Stopwatch) -> Meter:
    """The engine's meter, its two calls of a round timed."""
    meter = engine._parts.meter
    for name in ("round", "levels"):
        setattr(meter, name, watch.timed(getattr(meter, name)))
    return meter


def measure(rows: int, batches: int) -> tuple[float, float]:
    """Microseconds of a round, and of the meter in it."""
    it = rig(width=4, slots=rows, blocks=64 * rows, runner=FakeRunner(accept=lambda slot, number: 1), deliver=_drop)
    watch, seconds, metered, rounds = Stopwatch(), 0.0, 0.0, 0
    timed_meter(it.engine, watch)
    it.engine.turn((Attach(ScriptedDrafts()),))
    for batch in range(batches):
        specs = [request(f"{batch}-{row}", prompt(row, 5, VOCAB), TOKENS) for row in range(rows)]
        it.engine.turn([it.start(each) for each in specs])
        it.clock[0] += 10.0
        first, before, start = it.engine.steps, watch.seconds, perf_counter()
        while it.engine.turn(()):
            pass
        seconds += perf_counter() - start
        rounds += it.engine.steps - first
        metered += watch.seconds - before
    return seconds / rounds * 1e6, metered / rounds * 1e6


def _drop(news: object) -> None:
    """Nobody listens."""


def main() -> None:
    """Prints the median of several runs for each number of requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20)
    args = parser.parse_args()
    for rows in (1, 8):
        runs = [measure(rows, args.batches) for _ in range(args.runs)]
        round_us, meter_us = (statistics.median(column) for column in zip(*runs, strict=True))
        spread = f"{min(run[0] for run in runs):.0f}-{max(run[0] for run in runs):.0f}"
        print(f"{rows} rows: {round_us:.0f} us a round ({spread}), of it the meter {meter_us:.1f}")


if __name__ == "__main__":
    main()
