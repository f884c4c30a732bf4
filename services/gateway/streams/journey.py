"""Bounds of a request's way over targets, and sums over those that it has left."""

from dataclasses import dataclass

from services.gateway.targets.messages import Speculation, Usage


@dataclass(frozen=True, slots=True)
class JourneySettings:
    """Bounds of one request: targets tried, seconds that it waits for one, tokens that its client may be behind."""

    attempts: int
    wait_target_s: float
    outbox_tokens: int


@dataclass(slots=True)
class Totals:
    """Sums over the targets of one request; `numerics_changed` when they did not all compute its output alike."""

    usage: Usage
    speculation: Speculation
    migrations: int = 0
    numerics_changed: bool = False

    def add(self, usage: Usage, speculation: Speculation) -> None:
        """Adds one target; cached tokens are those of the first, later ones reuse what was computed before."""
        self.usage = Usage(
            cached_tokens=self.usage.cached_tokens or (0 if self.migrations else usage.cached_tokens),
            queue_s=self.usage.queue_s + usage.queue_s,
            prefill_s=self.usage.prefill_s + usage.prefill_s,
            decode_s=self.usage.decode_s + usage.decode_s,
        )
        self.speculation.add(speculation)
