"""Targets among which one is chosen, kept as they come and go; nothing is made anew for a request."""

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heapreplace
from typing import Generic, Protocol, TypeVar

HOMES = 3
"""Pairs at which a beginning may be at home, and pairs that are asked about a key: the next ones as a fleet changes."""

HASHES = 1 << 64
"""There are so many."""

_WORD = HASHES - 1

PROBES = 24
"""Of a key; the more there are, the less a pair's share depends on its part of the ring."""

POINTS = 32
"""Of a pair; the more there are, the more even are the parts of the ring."""


@dataclass(slots=True)
class Candidate:
    """A target that takes requests, as its last load report and the gateway's own count describe it.

    Whoever holds its session keeps it up to date. `dispatched` counts requests sent since that report, which it cannot
    know yet; `numerics` says how it rounds, `revision` which checkpoint of `model` it serves.
    """

    pair_id: str
    running: int = 0
    waiting: int = 0
    slots: int = 1
    queued_tokens: int = 0
    speculating: bool = True
    dispatched: int = 0
    numerics: str = ""
    revision: str = ""
    model: str = ""


class HasPair(Protocol):
    """Anything that belongs to one pair."""

    @property
    def pair_id(self) -> str:
        """The pair, the same for every gateway."""


Named = TypeVar("Named", bound=HasPair)


class Ring:
    """Names at points of a ring of hashes.

    Multi-probe consistent hashing (Appleton and O'Reilly 2015): a key has probes, and the names whose points follow
    these most closely are its own. A name that comes or goes moves only keys of its own, as with rendezvous hashing,
    and what a key costs does not grow with the number of names.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Takes the names that there are."""
        placed = sorted((point, name) for name in names for point in points_of(name))
        self._points = [point for point, _ in placed]
        self._owners = [name for _, name in placed]
        self._count = len(placed) // POINTS

    def add(self, name: str) -> None:
        """Takes in a pair that came."""
        self._count += 1
        for point in points_of(name):
            at = bisect_left(self._points, point)
            self._points.insert(at, point)
            self._owners.insert(at, name)

    def discard(self, name: str) -> None:
        """Forgets a pair that left."""
        self._count -= 1
        for point in points_of(name):
            at = bisect_left(self._points, point)
            del self._points[at], self._owners[at]

    def nearest(self, key: bytes, count: int) -> list[str]:
        """The names of a key, the nearest first.

        The points behind all probes are looked at in the order of their distances, so few more than `count` of them.
        """
        points, owners, count = self._points, self._owners, min(count, self._count)
        places = [(probe, bisect_left(points, probe) % (len(points) or 1)) for probe in _numbers(key, PROBES)]
        ahead = [((points[at] - probe) & _WORD, at, probe) for probe, at in places] if count else []
        heapify(ahead)
        found: dict[str, None] = {}
        while len(found) < count:
            _, at, probe = ahead[0]
            found[owners[at]] = None
            at = (at + 1) % len(points)
            heapreplace(ahead, ((points[at] - probe) & _WORD, at, probe))
        return list(found)


class Crowd(Generic[Named]):
    """Members by their pairs; one comes or goes without a look at the others."""

    def __init__(self, members: Iterable[Named] = ()) -> None:
        """Takes members of different pairs."""
        self.members: list[Named] = []
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._ring: Ring | None = None
        for one in members:
            self.add(one)

    def __len__(self) -> int:
        """Members."""
        return len(self.members)

    def add(self, member: Named) -> None:
        """A pair has come; it takes the place of a member of the same one."""
        name = member.pair_id
        place = self._places.get(name)
        if place is not None:
            self.members[place] = member
            return
        self._places[name] = len(self.members)
        self.members.append(member)
        self._names.append(name)
        if self._ring is not None:
            self._ring.add(name)

    def discard(self, pair_id: str) -> None:
        """A pair has gone, by the id under which it came; the last member takes its place."""
        place = self._places.pop(pair_id, None)
        if place is None:
            return
        member, name = self.members.pop(), self._names.pop()
        if place < len(self.members):
            self.members[place], self._names[place] = member, name
            self._places[name] = place
        if self._ring is not None:
            self._ring.discard(pair_id)

    def find(self, pair_id: str) -> Named | None:
        """The member of a pair, by the id under which it came."""
        place = self._places.get(pair_id)
        return None if place is None else self.members[place]

    def homes(self, key: bytes, count: int = HOMES) -> list[Named]:
        """The members that every gateway finds for a key, first the one that it should meet."""
        if self._ring is None:
            self._ring = Ring(self._names)
        return [self.members[self._places[name]] for name in self._ring.nearest(key, count)]


def _numbers(key: bytes, count: int) -> tuple[int, ...]:
    """So many numbers of 64 bits that are the same everywhere."""
    return struct.unpack(f"<{count}Q", hashlib.shake_128(key).digest(8 * count))


@lru_cache(maxsize=8192)
def points_of(pair_id: str) -> tuple[int, ...]:
    """Where a pair stands on the ring."""
    return _numbers(pair_id.encode(), POINTS)


def hash_of_bytes(key: bytes) -> int:
    """A number of 64 bits that is the same everywhere."""
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "little")


@lru_cache(maxsize=8192)
def hash_of(text: str) -> int:
    """The same of a text, kept for those that are asked for again and again."""
    return hash_of_bytes(text.encode())


class Fleet:
    """The candidates of one model: all, those of each checkpoint, and those beside this gateway."""

    def __init__(self, candidates: Iterable[Candidate] = (), own: str = "") -> None:
        """`own` is how ids of pairs beside this gateway begin; without it there are none."""
        self.all: Crowd[Candidate] = Crowd()
        self.near: Crowd[Candidate] = Crowd()
        self._by_revision: dict[str, Crowd[Candidate]] = {}
        self._own = own
        for one in candidates:
            self.add(one)

    @property
    def revisions(self) -> Mapping[str, Crowd[Candidate]]:
        """Candidates by checkpoint; each has some."""
        return self._by_revision

    def add(self, candidate: Candidate) -> None:
        """Takes in a pair that came."""
        self.all.add(candidate)
        self._by_revision.setdefault(candidate.revision, Crowd()).add(candidate)
        if self._own and candidate.pair_id.startswith(self._own):
            self.near.add(candidate)

    def discard(self, candidate: Candidate) -> None:
        """Forgets a pair that left."""
        self.all.discard(candidate.pair_id)
        self.near.discard(candidate.pair_id)
        of_revision = self._by_revision[candidate.revision]
        of_revision.discard(candidate.pair_id)
        if not of_revision:
            del self._by_revision[candidate.revision]

    def only(self, wanted: Sequence[Candidate]) -> "Fleet":
        """A fleet of some of them, for requests that may not go everywhere: those that move."""
        return Fleet(wanted, self._own)

    def of_revision(self, revision: str) -> Sequence[Candidate]:
        """Those of one checkpoint."""
        found = self._by_revision.get(revision)
        return found.members if found else ()
