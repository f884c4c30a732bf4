"""Which loads a group of the race consists of, and in which order both sides run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GROUPS = ("1,8", "32", "64,128")
"""Requests at once, in groups that take less than ten minutes each."""
PARTS = ("drafts", "closed", "plain")
"""What a group measures: speculation, its closed loops, and no drafts, for which vLLM is started once more."""
OUTS = (512, 128)
PROMPT, SLOTS = 512, 128
REPEATS, _MOST_REPEATS, _STREAMS = 3, 25, 72
"""Of a load: as many as have so many streams, within bounds. One stream draws by chance what it accepts."""
SCHEDULES = {"P65": "P65", "flat": "K15"}
"""Profiles of acceptance, both sides' alike, by the name that the benchmark's pair knows."""
CLOSED = (32, 128)
"""Requests at once of which closed loops are run too."""
CLOSED_S, LEAD_S = 20.0, 3.0
"""Seconds of a closed loop that count, and those before."""
_FEW = 8
PACELINE, VLLM, SGLANG = "paceline", "vllm", "sglang"
FLAT = "flat"
"""The one profile that SGLang can be given: its steps bring a mean, for all requests alike."""


@dataclass(frozen=True)
class Job:
    """One load in one mode: `k` is the longest draft, None where the width is chosen; plain has no profile.

    All requests start at once. In a closed loop, of so many `seconds`, the next one starts where one has ended, and
    `out` is the longest output.
    """

    profile: str | None
    out: int
    concurrency: int
    mode: str
    k: int | None
    seconds: float = 0.0

    @property
    def go(self) -> str:
        """The name of the load, which all rows share that may be compared."""
        return f"{'closed-' if self.seconds else ''}{self.profile or 'plain'}-{self.out}-{self.concurrency}"


@dataclass(frozen=True)
class Leg:
    """What one start of a side runs; a peer is started anew for each K and profile."""

    side: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Choice:
    """What of a group is run; `drafts` are the only K that are tried, if any are given.

    Without `fixed` paceline chooses all widths; `once` leaves out its second leg.
    """

    group: str
    profiles: Sequence[str] = ("P65",)
    fixed: bool = True
    drafts: Sequence[int] = ()
    parts: Sequence[str] = PARTS
    closed_s: float = CLOSED_S
    once: bool = False
    outs: Sequence[int] = OUTS
    peers: Sequence[str] = (VLLM,)


def drafts_of(concurrency: int) -> tuple[int, ...]:
    """The two K that are tried: no wider one pays with many requests."""
    return (15, 7) if concurrency <= _FEW else (7, 3)


def repeats_of(concurrency: int) -> int:
    """How often a load of so many requests is run: an odd number, since its median is told."""
    return min(max(_STREAMS // concurrency | 1, REPEATS), _MOST_REPEATS)


def requests_of(group: str) -> tuple[int, ...]:
    """Return how many requests at once the loads of a group have; any numbers between commas make one.

    Raises:
        ValueError: something between commas is no number of slots.
    """
    counts = tuple(int(count) for count in group.split(","))
    if not all(0 < count <= SLOTS for count in counts):
        raise ValueError(f"{group}: not all within 1 and {SLOTS}")
    return counts


def plan(choice: Choice) -> list[Leg]:
    """Return the legs: paceline, each peer at each K and without drafts, paceline.

    The first leg has closed loops and paceline at fixed K too; the last repeats what it chooses by itself, for drift to
    show. Where that is loops alone, it repeats them.
    """
    loads = [(out, count) for out in choice.outs for count in requests_of(choice.group)]
    loops = [(max(choice.outs), count) for count in requests_of(choice.group) if count in CLOSED and choice.closed_s]
    loads_, loops_ = loads if "drafts" in choice.parts else [], loops if "closed" in choice.parts else []
    plain = [Job(None, out, count, "plain", 0) for out, count in loads] if "plain" in choice.parts else []
    chosen, looped = _chosen(choice, loads_, 0.0), _chosen(choice, loops_, choice.closed_s)
    pinned, pinned_loops = _pinned(choice, loads_, 0.0), _pinned(choice, loops_, choice.closed_s)
    first = Leg(PACELINE, (*chosen, *(pinned if choice.fixed else ()), *looped, *plain))
    last = Leg(PACELINE, (*(chosen or looped), *plain))
    theirs = [leg for peer in choice.peers for leg in _of_peer(peer, (*pinned, *pinned_loops), plain)]
    return [first, *theirs, *([] if choice.once else [last])]


def _of_peer(peer: str, drafted: Sequence[Job], plain: Sequence[Job]) -> list[Leg]:
    """A leg for each K and profile that a peer can be given, and one without drafts."""
    jobs = [job for job in drafted if peer != SGLANG or job.profile == FLAT]
    engines = sorted({(job.profile, job.k) for job in jobs}, key=str)
    legs = [Leg(peer, tuple(job for job in jobs if (job.profile, job.k) == each)) for each in engines]
    return legs + ([Leg(peer, tuple(plain))] if plain else [])


def _chosen(choice: Choice, loads: Sequence[tuple[int, int]], seconds: float) -> list[Job]:
    """Jobs of paceline as users get it."""
    return [Job(profile, out, count, "adaptive", None, seconds) for profile in choice.profiles for out, count in loads]


def _pinned(choice: Choice, loads: Sequence[tuple[int, int]], seconds: float) -> list[Job]:
    """Jobs at each K that is tried: vLLM's, and paceline's beside them."""
    return [
        Job(profile, out, count, "fixed", k, seconds)
        for profile in choice.profiles
        for out, count in loads
        for k in drafts_of(count)
        if not choice.drafts or k in choice.drafts
    ]
