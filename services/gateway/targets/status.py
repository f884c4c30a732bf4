"""The load of the pairs: targets report it for routing, and describe their latest rounds when asked."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from services.gateway.targets.link import Link
from services.gateway.targets.messages import Load, PastRound

WINDOW_S = 5.0
"""Rates are means over these latest seconds."""

FRESH_S = 0.5
"""Seconds between two questions to a target, however many clients ask; of many targets, longer than asking takes."""

AT_ONCE = 64
"""Targets that are asked at the same time."""

SHARE = 4
"""Times as long as asking all takes, an answer serves."""


@dataclass(slots=True)
class Pace:
    """Rounds of the window: tokens per second, requests and tokens of them added up over rounds, rounds by width."""

    tokens_per_second: float = 0.0
    rows: int = 0
    row_tokens: int = 0
    by_width: Counter[int] = field(default_factory=Counter)

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens that a request committed per round; 0 without a round."""
        return self.row_tokens / self.rows if self.rows else 0.0

    def add(self, other: "Pace") -> None:
        """Adds what another pair has done to these sums."""
        self.tokens_per_second += other.tokens_per_second
        self.rows += other.rows
        self.row_tokens += other.row_tokens
        self.by_width.update(other.by_width)


@dataclass(frozen=True, slots=True)
class PairState:
    """One pair; `load` is None without a session, `away` says why it takes nothing new."""

    pair_id: str
    ready: bool
    proposer: str
    load: Load | None
    pace: Pace
    numerics: str = ""
    away: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """All pairs."""

    pairs: tuple[PairState, ...]

    @property
    def load(self) -> Load:
        """Every pair's load added up."""
        loads = [pair.load for pair in self.pairs if pair.load is not None]
        return Load(
            running=sum(one.running for one in loads),
            waiting=sum(one.waiting for one in loads),
            slots=sum(one.slots for one in loads),
            queued_tokens=sum(one.queued_tokens for one in loads),
            free_blocks=sum(one.free_blocks for one in loads),
            total_blocks=sum(one.total_blocks for one in loads),
        )

    @property
    def pace(self) -> Pace:
        """Every pair's rounds together."""
        total = Pace()
        for pair in self.pairs:
            total.add(pair.pace)
        return total


def pace(rounds: Sequence[PastRound]) -> Pace:
    """Sums up the rounds of the window.

    Args:
        rounds: the latest, oldest first. A target keeps a number of them, so those of a fast one cover less time.
    """
    if not rounds:
        return Pace()
    oldest = rounds[0]
    span_s = WINDOW_S if oldest.number <= 1 else min(oldest.age_s, WINDOW_S)
    latest = [one for one in rounds if one.age_s <= WINDOW_S]
    decoding = [one for one in latest if one.requests]
    rows = sum(one.requests for one in decoding)
    return Pace(
        tokens_per_second=sum(one.committed for one in latest) / span_s if span_s > 0 else 0.0,
        rows=rows,
        row_tokens=rows + sum(one.accepted for one in decoding),
        by_width=Counter(one.width for one in decoding),
    )


class StatusBoard:
    """Gathers the status; answers of the last half second serve everybody who asks meanwhile."""

    def __init__(self, links: Callable[[], Iterable[Link]], clock: Callable[[], float]) -> None:
        """`links` gives the connections as they are now, `clock` seconds."""
        self._links = links
        self._clock = clock
        self._looking = asyncio.Lock()
        self._seen: tuple[float, Status] | None = None

    async def look(self) -> Status:
        """The status, at most half a second old, or of many targets four times as old as asking them takes."""
        async with self._looking:
            begun = self._clock()
            if self._seen is None or begun > self._seen[0]:
                found = await self._gather()
                ended = self._clock()
                self._seen = (max(begun + FRESH_S, ended + SHARE * (ended - begun)), found)
            return self._seen[1]

    async def _gather(self) -> Status:
        links = [*self._links()]
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(link: Link) -> tuple[PastRound, ...]:
            async with places:
                return await link.rounds()

        rounds = await asyncio.gather(*(ask(link) for link in links))
        found: dict[str, PairState] = {}
        for link, past in zip(links, rounds, strict=True):
            state = PairState(
                pair_id=link.pair_id,
                ready=link.candidate() is not None,
                proposer=link.model.proposer if link.model else "",
                load=link.load,
                pace=pace(past),
                numerics=link.model.numerics if link.model else "",
                away=link.away,
                model=link.model.name if link.model else "",
            )
            if state.load is not None or link.pair_id not in found:
                found[link.pair_id] = state
        return Status(tuple(found[pair_id] for pair_id in sorted(found)))
