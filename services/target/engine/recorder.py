"""The flight recorder: what the latest rounds did, and where their time went."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from services.target.core.round import Round

CAPACITY = 256


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """One round; times in microseconds. ``fallback`` says why a speculative round had no drafts.

    ``ended`` is in seconds of the monotonic clock.
    """

    number: int
    width: int
    requests: int
    committed: int
    drafted: int
    accepted: int
    prefilled: int
    draft_us: int
    verify_us: int
    host_us: int
    fallback: str = ""
    nodes: bool = False
    ended: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, round_: Round) -> RoundEntry:
        """What a committed round did."""
        plan, output, commit = round_.plan, round_.output, round_.commit
        committed, drafted, accepted = commit.discarded, 0, 0
        for progress in commit.progress:
            committed += len(progress.tokens)
        # First tokens of prompts are of no row.
        rows = frozenset(plan.rows) if plan.chunks else None
        for outcome in round_.outcomes:
            if rows is None or outcome.slot in rows:
                drafted += outcome.drafted
                accepted += outcome.accepted
        return cls(
            number=plan.number,
            width=plan.width if round_.drafted else 1,
            requests=len(plan.rows),
            committed=committed,
            drafted=drafted,
            accepted=accepted,
            prefilled=plan.prefill_tokens if plan.chunks else 0,
            draft_us=round_.draft_us,
            verify_us=round(output.verify_us),
            host_us=round(output.prepare_us + output.host_us),
            fallback=round_.fallback,
            nodes=plan.nodes and round_.drafted,
        )


class FlightRecorder:
    """The last 256 rounds; written by the engine, read by any thread."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Starts empty."""
        self._entries: deque[RoundEntry] = deque(maxlen=capacity)
        self._lock = threading.Lock()

    def add(self, entry: RoundEntry) -> None:
        """Adds a round, dropping the oldest when full."""
        with self._lock:
            self._entries.append(entry)

    def entries(self) -> list[RoundEntry]:
        """The rounds, oldest first."""
        with self._lock:
            return list(self._entries)
