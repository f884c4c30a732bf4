"""The shapes that are compared, and the lengths at which an order of sums by position would show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.target.device.shapes import (
    RAGGED,
    SHORT_RAGGED,
    SHORT_TREES,
    TREES,
    VERIFY,
    PackShape,
    RunnerSettings,
)

TILE_TOKENS = 64
"""Positions of a key tile."""
EDGES = (TILE_TOKENS, 1024, 8192)
"""Positions at which a tile of keys ends, and then from which on attention splits what a row sees into larger parts."""
PREFILL = "prefill"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """One captured forward: a verify of `bucket` sequences by `width` rows, short or not, or a pack of segments.

    Rows of a verify are chains or nodes of trees, or `bucket` pieces of `width` rows that any sequences have.
    A mixed pack has one row of each of `beside` sequences behind its segments.
    """

    kind: str
    bucket: int
    width: int
    beside: int = 0

    @property
    def rows(self) -> int:
        """Rows of every product but a pack's last ones and its head."""
        return self.bucket * self.width + self.beside

    @property
    def counts(self) -> tuple[int, ...]:
        """Rows of its products: of a pack the last block has one for each segment, and those beside."""
        return (self.rows, self.bucket + self.beside) if self.packs else (self.rows,)

    @property
    def packs(self) -> bool:
        """Whether it computes a chunk of a prompt."""
        return self.kind == PREFILL

    @property
    def nodes(self) -> bool:
        """Whether rows are nodes of trees."""
        return self.kind in (TREES, SHORT_TREES)

    @property
    def pack(self) -> PackShape:
        """The pack that it is."""
        return PackShape(self.bucket, self.width, self.beside)

    @property
    def sequences(self) -> int:
        """Sequences that it computes `span` rows of, each as a round does; a pack has none but those beside it.

        One has a piece, and the other pieces are padding: there may be more pieces than sequences.
        """
        return self.beside if self.packs else 1 if self.pieces else self.bucket

    @property
    def pieces(self) -> bool:
        """Whether its rows are those of pieces."""
        return self.kind in (RAGGED, SHORT_RAGGED)

    @property
    def span(self) -> int:
        """Rows of each of these sequences."""
        return 1 if self.packs else self.width

    def __str__(self) -> str:
        return f"{self.kind} {self.bucket} x {self.width}{f' + {self.beside}' if self.beside else ''}"


def verify(bucket: int, width: int) -> Shape:
    """Return the shape of a round."""
    return Shape(VERIFY, bucket, width)


def prefill(segments: int, width: int, beside: int = 0) -> Shape:
    """Return the shape of a pack."""
    return Shape(PREFILL, segments, width, beside)


def every_shape(settings: RunnerSettings) -> Iterator[Shape]:
    """Yield all shapes that a target captures."""
    yield from (Shape(*round_) for round_ in (*settings.rounds, *settings.ragged_rounds))
    yield from (prefill(*pack) for pack in settings.every_pack)


def lengths(reach: int, widest: int, edges: Sequence[int] = EDGES) -> tuple[int, ...]:
    """Return lengths just below and above each edge, and the largest whose rows end at `reach`.

    A span that begins two positions below an edge has its third row above, so both sides are in one forward.
    """
    last = reach - widest
    around = (edge + step for edge in edges for step in (-2, 1))
    return tuple(sorted({min(length, last) for length in (*around, last)}))
