"""The measurements of one request, and sums and percentiles of many."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Record:
    """One request; times are seconds on one clock, `arrivals` holds (time, tokens) of every delta."""

    sent: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    ended: float = 0.0
    error: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    rounds: int = 0
    accepted: int = 0
    rounds_by_width: dict[int, int] = field(default_factory=dict)

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.arrivals[0][0] - self.sent if self.arrivals else float("inf")

    @property
    def gaps_s(self) -> list[float]:
        """Times between deltas."""
        return [after - before for (before, _), (after, _) in zip(self.arrivals, self.arrivals[1:], strict=False)]

    @property
    def token_s(self) -> float:
        """Mean time per token after the first delta."""
        tokens = len(self.token_ids) - (self.arrivals[0][1] if self.arrivals else 0)
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / tokens if tokens > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good request keeps: time to first token, and mean time per token, in seconds."""

    ttft_s: float = 1.0
    token_s: float = 0.05

    def met(self, record: Record) -> bool:
        """True for a request that ended well and in time."""
        return not record.error and record.ttft_s <= self.ttft_s and record.token_s <= self.token_s


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, nearest rank; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(records: Sequence[Record], objective: Objective) -> dict[str, float]:
    """Figures of a set of requests that ran together; times in milliseconds."""
    done = [record for record in records if not record.error]
    begun = min((record.sent for record in records), default=0.0)
    wall = max((record.ended for record in records), default=0.0) - begun
    tokens = sum(len(record.token_ids) for record in done)
    rounds = sum(record.rounds for record in done)
    gaps = [gap * 1e3 for record in done for gap in record.gaps_s]
    figures: dict[str, float] = {
        "requests": len(records),
        "errors": len(records) - len(done),
        "wall_s": wall,
        "tokens": tokens,
        "tok_s": tokens / wall if wall else 0.0,
        "tau": (sum(record.accepted for record in done) + rounds) / rounds if rounds else 0.0,
        "cached_tokens": sum(record.cached_tokens for record in done),
        "prompt_tokens": sum(record.prompt_tokens for record in done),
    }
    for name, values in (
        ("ttft_ms", [record.ttft_s * 1e3 for record in done]),
        ("gap_ms", gaps),
        ("queue_ms", [record.queue_s * 1e3 for record in done]),
    ):
        for share in (0.5, 0.95, 0.99):
            figures[f"{name}_p{share * 100:.0f}"] = percentile(values, share)
    good = sum(objective.met(record) for record in records)
    figures["good_share"] = good / len(records) if records else 0.0
    figures["goodput_rps"] = good / wall if wall else 0.0
    return {name: round(value, 4) for name, value in figures.items()}
