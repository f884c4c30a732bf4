"""What both sides are asked for, and what each tells of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LEAST = 32
"""Answers of a load, at least."""


@dataclass(frozen=True)
class Load:
    """Answers at one temperature, so many at once, each of `tokens` at most; `count` of them by prompts in turn."""

    streams: int
    temperature: float
    tokens: int
    repeats: int

    @property
    def count(self) -> int:
        """Answers of one repeat: two for each that runs at once."""
        return max(LEAST, 2 * self.streams)


@dataclass(frozen=True)
class Told:
    """One repeat of a load: seconds of it all, its tokens, and the tokens that a round brought, the bonus included."""

    seconds: float
    tokens: int
    tau: float


@dataclass(frozen=True)
class Row:
    """Medians of a side at one load; `k` is None where the pair chooses, and 0 where nothing is drafted."""

    system: str
    k: int | None
    streams: int
    temperature: float
    tokens_per_s: float
    least: float
    most: float
    tau: float


def row_of(system: str, k: int | None, load: Load, told: Sequence[Told]) -> Row:
    """Return the medians of some repeats."""
    speeds = sorted(one.tokens / one.seconds for one in told)
    tau = statistics.median(one.tau for one in told)
    speed = statistics.median(speeds)
    return Row(
        system, k, load.streams, load.temperature, round(speed, 1), round(speeds[0], 1), round(speeds[-1], 1),
        round(tau, 3),
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Return the speeds of all systems by load, each beside the best of the peer."""
    lines = [f"{'streams':>7} {'T':>4} {'system':<10} {'K':>6} {'tok/s':>9} {'spread':>7} {'tau':>6} {'by peer':>8}"]
    for row in sorted(rows, key=lambda row: (row.temperature, row.streams, row.system, row.k or 0)):
        peer = best(rows, row)
        k = "chosen" if row.k is None else str(row.k)
        spread = (row.most - row.least) / row.tokens_per_s
        ratio = f"{row.tokens_per_s / peer:8.2f}" if peer else f"{'-':>8}"
        lines.append(
            f"{row.streams:>7} {row.temperature:>4} {row.system:<10} {k:>6} {row.tokens_per_s:>9.1f} {spread:>7.1%}"
            f" {row.tau:>6.2f} {ratio}"
        )
    return "\n".join(lines)


def best(rows: Sequence[Row], like: Row) -> float:
    """Return the peer's best speed at the load of a row; 0 where it did not run."""
    load = (like.streams, like.temperature)
    speeds = (row.tokens_per_s for row in rows if row.system == "vllm" and (row.streams, row.temperature) == load)
    return max(speeds, default=0.0)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows as results hold them."""
    return [asdict(row) for row in rows]
