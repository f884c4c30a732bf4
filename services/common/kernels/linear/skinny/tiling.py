"""How products of up to 32 rows are divided among CTAs: every multiprocessor gets about as many bytes of the weight."""

from math import gcd
from typing import NamedTuple

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.tables import cuts

SUB = 64
"""Inputs of a swizzled row: stages are multiples of it deep."""
ROWS = (8, 16, 32)
"""Rows that a kernel is built for; those behind the last count as zero."""
_LINE_BYTES, _EIGHT = SUB * 2, 8
_INSTRUCTION_LINES = 64
_ALIGNMENT, _BARRIERS = 1024, 1024
_PROCESSORS, _MOST_LINES, _MOST_WAVES = 132, 160, 2
_BEFORE_ROUTER = _PROCESSORS * 2 // 3
_RING_BYTES, _STAGE_BYTES = 200 * 1024, 24 * 1024
_SUBS = (4, 2, 1)


class Uneven(NamedTuple):
    """CTAs that lead, lines of each, and lines of each that follows.

    CTAs start in order, as multiprocessors become free: those that lead start sooner. Where they have more lines, the
    last ones end with them. Before a recurrent layer they have fewer, so that its CTAs find room meanwhile.
    """

    leaders: int
    leading: int
    following: int


MEASURED: dict[tuple[int, int, Kind], dict[int, Uneven]] = {}
"""By lines and depth of a weight, and what follows: by the rows that a kernel is built for, where that was quicker."""
for _entry in cuts("bands"):
    assert isinstance(_entry.cut, dict), "bands have sizes"
    _of_product = MEASURED.setdefault((_entry.lines, _entry.depth, Kind[_entry.kind.upper()]), {})
    _of_product[_entry.rows] = Uneven(**_entry.cut)


class Band(NamedTuple):
    """Lines of a CTA (of a gated weight in both halves), 64s of depth in a stage, and stages."""

    lines: int
    subs: int
    stages: int

    def shared_bytes(self, rows: int) -> int:
        """Of stages, and of the lines behind the last that an instruction multiplies for nobody."""
        return self.stages * self.subs * _sub_bytes(rows, self.lines) + _behind_bytes(self.lines)


class SkinnyTiling(NamedTuple):
    """Rows, what follows, and the bands of CTAs; so many that lead may have bands of another size.

    None of it changes a bit: every CTA adds its whole depth in order.
    """

    rows: int
    kind: Kind
    band: Band
    leading: Band
    leaders: int = 0

    @property
    def box(self) -> int:
        """Lines that are loaded at a time."""
        return gcd(self.band.lines, self.leading.lines) if self.leaders else self.band.lines

    @property
    def shared_bytes(self) -> int:
        """Of a CTA, with its barriers."""
        return _ALIGNMENT + _BARRIERS + max(band.shared_bytes(self.rows) for band in (self.band, self.leading))

    def grid(self, outputs: int) -> tuple[int, int]:
        """Return the grid: a CTA for each band of lines, those of the leading size first."""
        halves = 2 if self.kind == Kind.GATED else 1
        behind = outputs * halves - self.leaders * self.leading.lines
        return self.leaders + -(-behind // self.band.lines), 1


def skinny_cut(lines: int, depth: int, rows: int, kind: Kind, routed: bool = False) -> SkinnyTiling | None:
    """Return the cut of a weight for so many rows; None where it does not fit, or Triton was quicker, as for a head.

    One CTA a multiprocessor asks for as many bytes at a time as fit there: smaller rings were slower. A weight
    of several waves has two CTAs there at a time. Bands are equal but for those that `MEASURED` has. Where rows are
    `routed` next, few of them leave multiprocessors for the router's product, which has its weights then. No CTA has
    fewer than eight lines, which it has room for anyway.
    """
    step = 2 * _EIGHT if kind == Kind.GATED else 4
    rows = next((most for most in ROWS if most >= rows), 0)
    if not rows or depth % SUB or lines % step:
        return None
    waves = -(-lines // (_PROCESSORS * _MOST_LINES))
    if waves > _MOST_WAVES:
        return None
    routed = routed and rows == ROWS[0] and waves == 1
    if not routed and (uneven := MEASURED.get((lines, depth, kind), {}).get(rows)):
        leading, following = _band(uneven.leading, depth, rows), _band(uneven.following, depth, rows)
        return SkinnyTiling(rows, kind, following, leading, uneven.leaders)
    processors, step = (_BEFORE_ROUTER, _EIGHT) if routed else (_PROCESSORS, step)
    width = min(max(_EIGHT, _rounded(-(-lines // (processors * waves)), step)), _MOST_LINES)
    # Attention of a row that is alone begins beside the product of its heads, if there is room.
    before_attention = kind == Kind.PLAIN and rows == ROWS[0] and waves == 1
    band = _band(width, depth, rows, waves, _behind_bytes(width) if before_attention else 0)
    return SkinnyTiling(rows, kind, band, band)


def _band(lines: int, depth: int, rows: int, waves: int = 1, taken: int = 0) -> Band:
    """`taken`: bytes of the ring's that something else needs."""
    steps, sub = depth // SUB, _sub_bytes(rows, lines)
    subs = next(subs for subs in _SUBS if steps % subs == 0 and (subs == 1 or subs * sub <= _STAGE_BYTES))
    stages = (_RING_BYTES // waves - taken) // (subs * sub)
    return Band(lines, subs, max(2, min(stages, steps // subs)))


def _sub_bytes(rows: int, lines: int) -> int:
    """Of 64 inputs of rows and lines, which the swizzle takes by eights."""
    return (rows + _rounded(lines, _EIGHT)) * _LINE_BYTES


def _behind_bytes(lines: int) -> int:
    """Of lines behind a band's last that an instruction multiplies for nobody."""
    return (_rounded(lines, _INSTRUCTION_LINES) - _rounded(lines, _EIGHT)) * _LINE_BYTES


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
