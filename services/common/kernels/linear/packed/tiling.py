"""How products of packed weights are divided among CTAs: all multiprocessors get about as many bytes of a weight."""

from functools import cache
from typing import NamedTuple

from services.common.kernels.linear.cuda import Kind

GROUP = 128
"""Inputs that share a scale of a line where it has more than one."""
_KINDS = (Kind.PLAIN, Kind.GATED, Kind.ADDED)
_EIGHT, _PROCESSORS = 8, 132
_SUB, _SUB_BYTES, _SCALE_BYTES, _BARRIERS, _ALIGNMENT = 64, 128, 4, 16, 1024
_TILE, _HELD = 64, (16, 32, 64, 128)
_FEW_LINES, _SOME_LINES, _MOST_LINES = 48, 64, (192, 96, 64)
"""Lines of a tile of which warps widen steps in turns, and that have long steps; and the most that threads have
registers for, or a CTA has room for."""
_SHARED_BYTES, _LEAST, _MOST = 232_448, 2, 16


class Packing(NamedTuple):
    """What a packed weight is: bits of a code, and its scales.

    `groups` are the 128s of depth that have scales of their own, or 1. Scales are `fine` where lines have their own,
    and `short` where they are numbers of bfloat16.
    """

    bits: int
    groups: int
    fine: bool
    short: bool


class PackedTiling(NamedTuple):
    """Rows and outputs of a tile, and the rings of a CTA.

    Of rows `held` are loaded, in `stages` of `subs` 64s of inputs; so many are a step. A box of codes has `thick` rows
    of 128 bytes of each line, and there are `boxes`. Steps are widened by `warps`, which have them in `turns`, into
    `wides`. None of it changes a bit.
    """

    rows: int
    band: int
    kind: Kind
    packing: Packing
    held: int
    subs: int
    thick: int
    warps: int
    turns: int
    wides: int
    stages: int = 0
    boxes: int = 0

    @property
    def halves(self) -> int:
        """Parts of the weight that a tile has lines of."""
        return 1 + (self.kind == Kind.GATED)

    @property
    def lines(self) -> int:
        """Of a tile."""
        return self.band * self.halves

    @property
    def depth(self) -> int:
        """Inputs of a box, of which a product's depth is a multiple."""
        return self.thick * _SUB_BYTES * 8 // self.packing.bits

    @property
    def threads(self) -> int:
        """A warpgroup for each 64 rows, two warps that load, and those that widen."""
        return self.rows // _TILE * 128 + (2 + self.warps) * 32

    @property
    def stage_bytes(self) -> int:
        """Of the rows of a step."""
        return self.subs * self.held * _SUB_BYTES

    @property
    def box_bytes(self) -> int:
        """Of codes."""
        return self.thick * self.lines * _SUB_BYTES

    @property
    def scale_bytes(self) -> int:
        """Of the scales that a CTA keeps."""
        return self.packing.groups * (self.lines if self.packing.fine else self.lines // _EIGHT) * _SCALE_BYTES

    @property
    def shared_bytes(self) -> int:
        """Of a CTA: its rings, their barriers, scales, and what aligning the first costs."""
        rings = (self.stages, self.stage_bytes), (self.boxes, self.box_bytes), (self.wides, self.wide_bytes)
        return sum(places * (size + _BARRIERS) for places, size in rings) + self.scale_bytes + _ALIGNMENT

    @property
    def wide_bytes(self) -> int:
        """Of a step that is widened."""
        return self.subs * self.lines * _SUB_BYTES

    def height(self, rows: int) -> int:
        """Return how many rows of a tile are used, so that tiles share out evenly what there is."""
        tiles = -(-rows // self.rows)
        return -(-rows // (tiles * _EIGHT)) * _EIGHT

    def grid(self, rows: int, lines: int) -> tuple[int, int]:
        """Return the CTAs of a weight: no more than run at once, each of which takes one tile after the other."""
        tiles = -(-rows // self.rows) * -(-lines // self.lines)
        return min(tiles, _PROCESSORS), 1


@cache
def packed_cut(
    lines: int, depth: int, rows: int, kind: Kind, packing: Packing, forced: tuple[tuple[str, int], ...] = ()
) -> PackedTiling | None:
    """Return the cut of a weight for so many rows; None where it does not fit.

    What is `forced` is taken for what the rule says.
    """
    step = _EIGHT * (1 + (kind == Kind.GATED))
    if depth % (1024 // packing.bits) or lines % step or kind not in _KINDS:
        return None
    # Prompts have any number of rows, and each cut is a kernel.
    rows = rows if rows <= _HELD[-1] else 1 << (rows - 1).bit_length()
    found = (_fitted(lines, depth, rows, kind, packing, most, dict(forced)) for most in _MOST_LINES)
    return next(filter(None, found), None)


def _fitted(
    lines: int, depth: int, rows: int, kind: Kind, packing: Packing, most: int, forced: dict[str, int]
) -> PackedTiling | None:
    """Return the cut whose tiles have up to so many lines."""
    tile = forced.get("rows", _TILE if rows <= _TILE else 2 * _TILE)
    bands, step = max(1, _PROCESSORS // -(-rows // tile)), _EIGHT * (1 + (kind == Kind.GATED))
    waves = -(-lines // (bands * most))
    of_tile = -(-lines // (bands * waves * step)) * step
    held = next(some for some in _HELD if min(rows, tile) <= some)
    few = tile == _TILE and held < _TILE
    subs = (4 if few else 2) if of_tile <= _SOME_LINES else 1
    thick = 2 if packing.bits == 8 and of_tile <= _SOME_LINES and depth % (2 * GROUP) == 0 else 1
    subs = min(subs, thick * 16 // packing.bits)
    turns = 2 if of_tile <= _FEW_LINES else 1
    warps = turns * of_tile // _EIGHT if turns > 1 else 8 if tile == _TILE else 6
    wides = 4 if turns > 1 else 3
    cut = PackedTiling(tile, of_tile * _EIGHT // step, kind, packing, held, subs, thick, warps, turns, wides)
    return _filled(cut._replace(**forced))  # type: ignore[arg-type]


def _filled(cut: PackedTiling) -> PackedTiling | None:
    """Return the cut with rings of rows and of codes that go about as far ahead as one another; None if none fits."""
    room = _SHARED_BYTES - cut.shared_bytes
    row_bytes, code_bytes = cut.stage_bytes / (cut.subs * _SUB), cut.box_bytes / cut.depth
    boxes = max(_LEAST, min(_MOST, round(room / (row_bytes + code_bytes) / cut.depth)))
    stages = min(_MOST, (room - boxes * (cut.box_bytes + _BARRIERS)) // (cut.stage_bytes + _BARRIERS))
    return cut._replace(stages=stages, boxes=boxes) if stages >= _LEAST else None
