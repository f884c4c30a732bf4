"""Finds the algorithm that is quickest under load and no slower after a pause, among those with torch's bits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.common.kernels.linear.cublaslt.algorithm import Algorithm
from services.common.kernels.linear.cublaslt.problem import Candidate
from tests.bench.gpu.products.clock import Replay, Step

Row = dict[str, Any]
LEAST_GAIN = 1.02
"""Torch's time over an algorithm's, hot, from which on it enters the table."""
MOST_COLD_LOSS = 1.01
"""An algorithm's time over torch's that is borne behind a pause."""
Rival = Algorithm | None
TORCH = None
"""The rival that torch computes, by an algorithm of its library's choice."""


class Subject(Protocol):
    """A product; see `subject.Subject`, which is the real one."""

    @property
    def launches(self) -> int:
        """Products of a step."""
        ...

    def candidates(self) -> list[Candidate]:
        """What the library proposes."""
        ...

    def variants(self, algorithm: Algorithm) -> Iterable[Candidate]:
        """An algorithm with other options."""
        ...

    def wrong(self, candidate: Candidate) -> str:
        """Why it cannot be used."""
        ...

    def step(self, algorithm: Algorithm | None) -> Step:
        """Some products by an algorithm, or by torch."""
        ...

    def described(self, algorithm: Algorithm) -> dict[str, int]:
        """Options by name."""
        ...


class Clock(Protocol):
    """See `clock.GpuClock`, which is the real one."""

    def captured(self, step: Step) -> Replay:
        """Records a step."""
        ...

    def hot(self, replay: Replay, seconds: float) -> float:
        """Microseconds of a replay under load."""
        ...

    def cold(self, replay: Replay, pause: float) -> float:
        """Microseconds behind a pause."""
        ...


@dataclass(frozen=True)
class Effort:
    """How long each part takes, in seconds: screening, the load behind it, and each of the times that count."""

    screen: float = 0.003
    passes: int = 2
    varied: int = 2
    finalists: int = 2
    load: float = 0.3
    hot: float = 0.06
    rounds: int = 3
    pause: float = 0.02


@dataclass
class Contest:
    """One product's algorithms, captured and timed in turn."""

    subject: Subject
    clock: Clock
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        self._replays: dict[Rival, Replay] = {TORCH: self.clock.captured(self.subject.step(TORCH))}
        self._dropped: Counter[str] = Counter()

    def row(self) -> Row:
        """Times in microseconds a product: torch's, the best algorithm's, and what decided."""
        screened = self.screened()
        finalists = sorted(screened, key=screened.__getitem__)[: self.effort.finalists]
        self.clock.hot(self._replays[TORCH], self.effort.load)
        hot = self._turns([TORCH, *finalists], lambda replay: self.clock.hot(replay, self.effort.hot))
        cold = self._turns([TORCH, *finalists], lambda replay: self.clock.cold(replay, self.effort.pause))
        borne = [one for one in finalists if cold[one] <= cold[TORCH] * MOST_COLD_LOSS]
        best = min(borne, key=hot.__getitem__, default=TORCH)
        gain = hot[TORCH] / hot[best]
        found: Row = {
            "torch_us": round(hot[TORCH], 2), "best_us": round(hot[best], 2), "gain": round(gain, 4),
            "torch_cold_us": round(cold[TORCH], 2), "best_cold_us": round(cold[best], 2),
            "exact": len(screened), "dropped": dict(self._dropped),
            "finalists": [
                {"algorithm": str(one), "us": round(hot[one], 2), "cold_us": round(cold[one], 2)} for one in finalists
            ],
        }  # fmt: skip
        if best is not None:
            found |= {"algorithm": str(best), "options": self.subject.described(best), "enters": gain >= LEAST_GAIN}
        return found

    def screened(self) -> dict[Algorithm, float]:
        """Return the least of short times of what the library proposes and of variants, microseconds a product."""
        screened = self._screened(self.subject.candidates())
        first = sorted(screened, key=screened.__getitem__)[: self.effort.varied]
        return screened | self._screened(varied for algorithm in first for varied in self.subject.variants(algorithm))

    def _screened(self, candidates: Iterable[Candidate]) -> dict[Algorithm, float]:
        """Capture those that are new and exact; return the least of their short times, microseconds a product."""
        new: dict[Algorithm, float] = {}
        for candidate in candidates:
            if candidate.algorithm in self._replays or candidate.algorithm in new:
                continue
            if why := self.subject.wrong(candidate):
                self._dropped[why] += 1
                continue
            self._replays[candidate.algorithm] = self.clock.captured(self.subject.step(candidate.algorithm))
            new[candidate.algorithm] = float("inf")
        for _ in range(self.effort.passes):
            for algorithm, least in new.items():
                micros = self.clock.hot(self._replays[algorithm], self.effort.screen) / self.subject.launches
                new[algorithm] = min(least, micros)
        return new

    def _turns(self, rivals: Sequence[Rival], measure: Callable[[Replay], float]) -> dict[Rival, float]:
        """Return the median of each rival's times, which are taken in turn, each time begun by another."""
        times: dict[Rival, list[float]] = {one: [] for one in rivals}
        for turn in range(self.effort.rounds):
            at = turn % len(rivals)
            for one in (*rivals[at:], *rivals[:at]):
                times[one].append(measure(self._replays[one]) / self.subject.launches)
        return {one: statistics.median(taken) for one, taken in times.items()}
