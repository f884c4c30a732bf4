"""How products of packed weights are divided among CTAs: all multiprocessors get about as many bytes of a weight."""

from typing import NamedTuple

from services.common.kernels.linear.cuda import Kind

GROUP = 128
"""Inputs that share a scale of a line where it has more than one."""
ROWS = (8, 16, 32, 64, 128)
"""Rows that a kernel is built for; those behind the last count for nothing."""
EIGHT, _SIXTEEN = 8, 16
"""Lines of an instruction, and the fewest of a scale that kernels need not keep for each line."""
_SUB_BYTES, _X_BYTES, _SCALE_BYTES = 128, 2, 4
_PROCESSORS = 132
_TILE, _MOST, _MOST_OF_TWO = 64, 192, 128
_ALIGNMENT, _STAGE_BARRIERS, _SHARED_BYTES = 1024, 16, 224 * 1024
_LEAST_STAGES, _FEW_STAGES, _MOST_STAGES = 6, 3, 24
"""Fewer stages are not made larger: one is multiplied, and another one waits to be filled again."""
_LONG, _EIGHT_RING, _MOST_RING = 8192, 112 * 1024, 160 * 1024
_RING, _PLAIN_RING, _RING_OF_TWO = 145 * 1024, 129 * 1024, 98 * 1024
"""Bytes of rings of nine to sixteen rows as they were quickest in a layer, and most of one with the fewest stages.

Of up to eight rows a ring leaves room for the product behind.
"""


class PackedTiling(NamedTuple):
    """Rows, lines of a CTA, swizzled rows of codes in a stage, stages, and what follows.

    A multiprocessor has room for `ctas`. `groups` are the 128s of depth that have scales of their own, or 1. Scales are
    `fine` where lines have their own, `short` where they are numbers of bfloat16, and `fused` as a weight says. CTAs of
    a `cluster` load rows for one another. None of it changes a bit.
    """

    rows: int
    lines: int
    subs: int
    stages: int
    ctas: int
    groups: int
    fine: bool
    short: bool
    kind: Kind
    bits: int = 8
    cluster: int = 1
    fused: bool = False

    @property
    def depth(self) -> int:
        """Inputs of a swizzled row of codes."""
        return _SUB_BYTES * 8 // self.bits

    @property
    def band(self) -> int:
        """Outputs of a CTA."""
        return self.lines // 2 if self.kind == Kind.GATED else self.lines

    @property
    def warps(self) -> int:
        """Those that multiply: four for each 64 lines."""
        return -(-self.lines // _TILE) * 4

    @property
    def threads(self) -> int:
        """Of the warps that multiply, and of one that loads."""
        return (self.warps + 1) * 32

    @property
    def row_box(self) -> int:
        """Rows that a CTA loads at a time."""
        return self.rows // self.cluster

    @property
    def scale_bytes(self) -> int:
        """Of the scales that a CTA keeps."""
        return self.groups * (self.lines if self.fine else self.lines // EIGHT) * _SCALE_BYTES

    @property
    def stage_bytes(self) -> int:
        """Of rows and codes."""
        return self.subs * (self.rows * self.depth * _X_BYTES + self.lines * _SUB_BYTES)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: its stages with their barriers, and scales."""
        return _ALIGNMENT + self.stages * (self.stage_bytes + _STAGE_BARRIERS) + self.scale_bytes

    @property
    def squares_bytes(self) -> int:
        """Of shared memory beside: squares of rows, by warp."""
        return self.warps * self.rows * 8 if self.kind == Kind.ADDED else 0

    def grid(self, lines: int) -> tuple[int, int]:
        """Return the CTAs of a weight."""
        clusters = -(-lines // (self.lines * self.cluster))
        return clusters * self.cluster, 1


def packed_cut(
    lines: int, depth: int, rows: int, kind: Kind, groups: int, fine: bool, short: bool, bits: int = 8
) -> PackedTiling | None:
    """Return the cut of a weight; None where it does not fit, or rows are too many."""
    rows = next((most for most in ROWS if most >= rows), 0)
    step = 2 * EIGHT if kind == Kind.GATED else EIGHT
    if not rows or depth % (_SUB_BYTES * 8 // bits) or lines % step or kind not in _KINDS:
        return None
    # Two have no registers for the sums of many rows.
    ctas = 1 if lines <= _PROCESSORS * _MOST or rows == ROWS[-1] else 2
    waves = -(-lines // (_PROCESSORS * (_MOST if ctas == 1 else _MOST_OF_TWO)))
    band = -(-lines // (_PROCESSORS * waves * step)) * step
    together = next(most for least, most in _TOGETHER if rows >= least)
    return _staged(PackedTiling(rows, band, 1, 1, ctas, groups, fine, short, kind, bits, together), depth)


def _staged(cut: PackedTiling, depth: int) -> PackedTiling | None:
    """Return the cut with a ring that fits; None if none does."""
    steps, room = depth // cut.depth, _SHARED_BYTES // cut.ctas - cut.scale_bytes - cut.squares_bytes - _ALIGNMENT
    least, ring, most = _LEAST_STAGES, room, room
    if cut.rows == EIGHT and cut.ctas == 1:
        least, ring = _FEW_STAGES if depth > _LONG else _FEW_STAGES + 1, min(room, _EIGHT_RING)
        most = ring
    elif cut.rows == _SIXTEEN:
        ring = _RING_OF_TWO if cut.ctas > 1 else _PLAIN_RING if cut.kind == Kind.PLAIN else _RING
        least, ring, most = _FEW_STAGES, min(room, ring), min(room, _MOST_RING if cut.ctas == 1 else ring)
    largest = most // (cut.stage_bytes + _STAGE_BARRIERS) // least
    subs = next(subs for subs in (4, 2, 1) if steps % subs == 0 and subs <= max(1, largest))
    cut = cut._replace(subs=subs)
    size = cut.stage_bytes + _STAGE_BARRIERS
    stages = min(max(ring // size, min(least, most // size)), _MOST_STAGES, steps // subs)
    return cut._replace(stages=stages) if stages >= min(2, steps // subs) else None


_KINDS = (Kind.PLAIN, Kind.GATED, Kind.ADDED)
_TOGETHER = ((32, 2), (0, 1))
"""Rows from which on so many CTAs load them for one another: each of them would take in all rows.

By fours 64 and 128 rows took twice as long, as if not all clusters fitted at once.
"""
