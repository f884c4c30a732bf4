"""Finds the shapes whose rows differ from those of one sequence decoded token by token."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Protocol

import torch
from torch import Tensor

from services.target.device.exact.shape import EDGES, TILE_TOKENS, Shape, lengths, verify
from services.target.device.shapes import VERIFY

_SEED = 7
_RANDOM_ROWS = 2
_MOST_ROUNDS = 192
"""Rounds that may stand for one pack at the second of its places; the first is compared however many it takes."""


class Sequences(Protocol):
    """Scratch sequences in the first slots; see `Scratch`, which is the real one."""

    seats: int
    reach: int

    @property
    def in_order(self) -> bool:
        """Whether rows of a sequence are computed one behind the other: a round has one of a chunk's slots, and a pack
        one segment of it."""
        ...

    def seat(self, lengths: Sequence[int]) -> None:
        """Gives the first slots sequences of these lengths."""
        ...

    def verify(self, shape: Shape, slots: Sequence[int], offset: int = 0) -> Tensor:
        """Runs a round, or the rows beside an empty pack; returns prints [slots, span, 2]."""
        ...

    def prefill(self, pack: Shape, start: int) -> Tensor:
        """Runs a chunk that fills a pack; returns prints [tokens, 2], with scores of the last ones alone."""
        ...

    def in_rounds(self, bucket: int, width: int, chunk: int, start: int) -> Tensor:
        """Computes a chunk's tokens by rounds; returns prints [tokens, 2], with the scores of all."""
        ...


class Comparison:
    """Compares every shape of a target, at lengths around some edges.

    What counts is a plain round of one sequence. With it some rows of every bucket's rounds are compared: the first,
    the last, and two at random. All rows of its other rounds are compared with plain rounds of their bucket. A pack is
    compared with rounds of a shape that was found equal.
    """

    def __init__(self, sequences: Sequences, shapes: Iterable[Shape], edges: Sequence[int] = EDGES) -> None:
        self._of, self._shapes = sequences, sorted(shapes)
        self._edges = tuple(edges)
        self._widest = max(shape.span for shape in self._shapes)
        self._random = Random(_SEED)

    def differing(self, only: Iterable[Shape] | None = None) -> tuple[Shape, ...]:
        """Return the shapes whose rows differ, of all or of some, in order."""
        wanted = set(self._shapes if only is None else only)
        found: set[Shape] = set()
        for bucket in sorted({shape.sequences for shape in self._shapes if shape.sequences}):
            asked = [shape for shape in self._shapes if shape.sequences == bucket and shape in wanted]
            for seated in self._seatings(bucket) if asked else ():
                self._of.seat(seated)
                found |= set(self._rounds(bucket, asked, len(seated)))
        equal = [shape for shape in self._shapes if shape.kind == VERIFY and shape not in found]
        by = max(equal, key=self._pace, default=verify(1, 1))
        found |= set(self._packs([shape for shape in self._shapes if shape.packs and shape in wanted], by))
        return tuple(sorted(found))

    def _seatings(self, bucket: int) -> Iterator[tuple[int, ...]]:
        """Yield the lengths of a bucket's sequences, until every length had its turn."""
        places = lengths(self._of.reach, self._widest, self._edges)
        count = min(bucket, self._of.seats)
        for first in range(0, len(places), count):
            yield tuple(places[(first + seat) % len(places)] for seat in range(count))

    def _rounds(self, bucket: int, asked: Sequence[Shape], count: int) -> Iterator[Shape]:
        """Yield the rounds of a bucket that differ, for the sequences that are seated."""
        slots, measure = range(count), verify(bucket, 1)
        others = {shape: self._of.verify(shape, slots) for shape in asked if shape != measure}
        widest = max(shape.span for shape in asked)
        plain = torch.cat([self._of.verify(measure, slots, offset) for offset in range(widest)], 1)
        alone = {
            (slot, row): self._of.verify(verify(1, 1), (slot,), row)[0, 0] for slot, row in self._chosen(count, widest)
        }
        sound = all(torch.equal(plain[place], one) for place, one in alone.items())
        if not sound:
            yield measure
        for shape, rows in others.items():
            near = {place: one for place, one in alone.items() if place[1] < shape.span}
            if any(not torch.equal(rows[place], one) for place, one in near.items()) or (
                sound and not torch.equal(rows, plain[:, : shape.span])
            ):
                yield shape

    def _chosen(self, count: int, width: int) -> list[tuple[int, int]]:
        """Return (sequence, row) of the first row, the last, and two at random."""
        every = [(slot, row) for slot in range(count) for row in range(width)]
        middle = self._random.sample(every[1:-1], min(_RANDOM_ROWS, max(0, len(every) - 2)))
        return list(dict.fromkeys((every[0], *middle, every[-1])))

    def _packs(self, packs: Iterable[Shape], by: Shape) -> Iterator[Shape]:
        """Yield the packs that differ from rounds, behind a tile's edge or where they end near the limit.

        Rounds are run once for all packs that begin at one place.
        """
        places: dict[int, list[Shape]] = {}
        for pack in packs:
            rows = self._in_a_row(pack)
            last = max(0, self._of.reach - self._widest - rows - self._of.in_order)
            starts = sorted({min(TILE_TOKENS - 2, last), last})
            for start in starts if rows <= _MOST_ROUNDS * self._in_a_row(by) else starts[:1]:
                places.setdefault(start, []).append(pack)
        for start, here in places.items():
            found = [self._of.prefill(pack, start) for pack in here]
            rounds_T2 = self._of.in_rounds(by.bucket, by.width, max(map(len, found)), start)
            for pack, own_T2 in zip(here, found, strict=True):
                near_T2, scored_T = rounds_T2[: len(own_T2)], own_T2[:, 0] != 0
                if not (torch.equal(own_T2[:, 1], near_T2[:, 1]) and torch.equal(own_T2[scored_T], near_T2[scored_T])):
                    yield pack

    def _in_a_row(self, shape: Shape) -> int:
        """Rows of one sequence that a shape computes at most."""
        return shape.width if self._of.in_order else shape.rows - shape.beside

    def _pace(self, shape: Shape) -> tuple[int, int]:
        """How far a round takes a chunk, and then how little it has beside."""
        return self._in_a_row(shape), -shape.rows
