"""Lays the prompt chunks of a round out in packs, over plain integers.

A pack is one forward. Chunks are cut into its segments; those of one prompt may lie side by side, because all of them
write their K/V before any attends.
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from services.target.core.plan import Chunk, Plan, Save
from services.target.device.shapes import PackShape

_Work = tuple[Chunk, int]
"""A chunk, and the place of its first token."""


class Segment(NamedTuple):
    """Tokens of a prompt at positions `start ..`.

    A segment that ends its prompt has the `place` of its first token among those that the round chooses; others -1.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...]
    place: int = -1


class Pack(NamedTuple):
    """The segments of one forward, and what of recurrent states is kept after it."""

    shape: PackShape
    segments: list[Segment]
    saves: tuple[Save, ...] = ()


def packed(chunks: Sequence[Chunk], shapes: Sequence[PackShape]) -> list[Pack]:
    """Returns packs of the chunks in order, each of as many as a shape holds together.

    Raises:
        ValueError: a chunk is longer than every shape.
    """
    places = count()
    work = [(chunk, next(places) if chunk.last else -1) for chunk in chunks]
    if work and _fitting(work, shapes):
        return [_pack(work, shapes)]
    packs: list[list[_Work]] = []
    for one in work:
        if packs and _fitting([*packs[-1], one], shapes):
            packs[-1].append(one)
        else:
            packs.append([one])
    return [_pack(work, shapes) for work in packs]


def mixed(plan: Plan, packs: Sequence[Pack], shape: PackShape | None) -> Pack | None:
    """Returns the one pack of a plain round in the mixed shape; None where it is too large or too small for that.

    Beside a pack half full rows would cost more than a forward of their own.
    """
    if shape is None or not plan.rows or plan.width > 1 or len(packs) != 1:
        return None
    (pack,) = packs
    fits = len(pack.segments) <= shape.segments <= pack.shape.segments
    return pack._replace(shape=shape) if fits else None


def _fitting(work: Sequence[_Work], shapes: Sequence[PackShape]) -> list[PackShape]:
    """The shapes that hold chunks together; a segment that must be whole has a prompt of its own."""
    lengths, apart = [len(chunk.token_ids) for chunk, _ in work], len({chunk.slot for chunk, _ in work}) == len(work)
    return [shape for shape in shapes if shape.holds(lengths) and (apart or not shape.whole)]


def _pack(work: Sequence[_Work], shapes: Sequence[PackShape]) -> Pack:
    """Takes the shape of the fewest rows, and among equals of the fewest segments."""
    shape = min(_fitting(work, shapes), key=lambda shape: (shape.rows, shape.segments))
    segments = [segment for chunk, place in work for segment in _cut(chunk, shape.width, place)]
    return Pack(shape, segments, tuple(save for chunk, _ in work for save in chunk.saves))


def _cut(chunk: Chunk, width: int, place: int) -> list[Segment]:
    ids, starts = chunk.token_ids, range(0, len(chunk.token_ids), width)
    segments = [Segment(chunk.slot, chunk.start + start, ids[start : start + width]) for start in starts]
    segments[-1] = segments[-1]._replace(place=place)
    return segments
