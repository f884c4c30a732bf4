"""Which loads a group of the race consists of, and in which order both sides run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GROUPS = ("1,8", "32", "64,128")
"""Requests at once, in groups that take some ten minutes each."""
OUTS = (512, 128)
PROMPT, SLOTS, REPEATS = 512, 128, 3
SCHEDULES = {"P65": "P65", "flat": "K15"}
"""Profiles of acceptance, both sides' alike, by the name that the benchmark's pair knows."""
_FEW = 8
PACELINE, VLLM = "paceline", "vllm"


@dataclass(frozen=True)
class Job:
    """One load in one mode: `k` is the longest draft, None where the width is chosen; plain has no profile."""

    profile: str | None
    out: int
    concurrency: int
    mode: str
    k: int | None

    @property
    def go(self) -> str:
        """The name of the load, which all rows share that may be compared."""
        return f"{self.profile or 'plain'}-{self.out}-{self.concurrency}"


@dataclass(frozen=True)
class Leg:
    """What one start of a side runs; vLLM is started anew for each K and profile."""

    side: str
    jobs: tuple[Job, ...]


def drafts_of(concurrency: int) -> tuple[int, ...]:
    """The two K that are tried: no wider one pays with many requests."""
    return (15, 7) if concurrency <= _FEW else (7, 3)


def requests_of(group: str) -> tuple[int, ...]:
    """Return how many requests at once the loads of a group have; any numbers between commas make one.

    Raises:
        ValueError: something between commas is no number of slots.
    """
    counts = tuple(int(count) for count in group.split(","))
    if not all(0 < count <= SLOTS for count in counts):
        raise ValueError(f"{group}: not all within 1 and {SLOTS}")
    return counts


def plan(group: str, profiles: Sequence[str] = ("P65",), fixed: bool = True, drafts: Sequence[int] = ()) -> list[Leg]:
    """Return the legs of a group: paceline, vLLM, paceline; `drafts` are the only K that are tried, if any are given.

    The first leg has paceline at fixed K too; the second repeats what it chooses by itself, for drift to show.
    """
    loads = [(out, count) for out in OUTS for count in requests_of(group)]
    plain = [Job(None, out, count, "plain", 0) for out, count in loads]
    chosen = [Job(profile, out, count, "adaptive", None) for profile in profiles for out, count in loads]
    pinned = [
        Job(profile, out, count, "fixed", k)
        for profile in profiles
        for out, count in loads
        for k in drafts_of(count)
        if not drafts or k in drafts
    ]
    engines = {(job.profile, job.k) for job in pinned}
    theirs = [Leg(VLLM, tuple(job for job in pinned if (job.profile, job.k) == engine))
              for engine in sorted(engines, key=str)]  # fmt: skip
    first = Leg(PACELINE, (*chosen, *(pinned if fixed else ()), *plain))
    return [first, *theirs, Leg(VLLM, tuple(plain)), Leg(PACELINE, (*chosen, *plain))]
