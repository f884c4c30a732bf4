"""A cut for a product that no table has, by what its tiles take: arithmetic, L2, or memory.

The model is a shortlist, not a judge. Of tilings that were measured on an H200 it said the right time in the mean, and
from 80 to 131 % of it. What is measured goes into a table, which comes first.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import STORED_LINES, PersistentTiling

_PROCESSORS = 132
_FLOPS, _CACHE_BYTES, _MEMORY_BYTES = 1400e12 / _PROCESSORS, 10e12, 4.6e12
"""A second: of a multiprocessor's matrix units for numbers of one byte, of L2, and of memory."""
_LAUNCH_S = 2.6e-6
_RESULT_BYTES, _SUB_BYTES, _SHARED_BYTES, _STAGE_BYTES = 2, 128, 232_448, 24 * 1024
_LEAST_STAGES, _MOST_STAGES = 4, 12
_REGISTERS, _MOST_LINES = 65_536, 256
_BESIDE = {Kind.ADDED: 88}
"""Registers of a thread beside its sums, where they are more than 24: for a stream and its norm."""
_SCALES = 12
"""Registers of a thread for the scales of integers."""
_TILE_ROWS = (64, 128, 192, 256)
_PAIRS = (1, 1), (2, 1), (1, 2)
"""CTAs that share lines, and CTAs that share rows."""
_ALIKE = 1.15
"""The model tells cuts apart that are further from one another."""


@cache
def ruled_cut(lines: int, depth: int, rows: int, kind: Kind, wide: bool = True) -> PersistentTiling | None:
    """Return the cut of a weight that serves where no table has one; None where none is legal."""
    return next(iter(shortlist(lines, depth, rows, kind, 1, wide=wide)), None)


def shortlist(lines: int, depth: int, rows: int, kind: Kind, most: int, wide: bool = True) -> list[PersistentTiling]:
    """Return up to so many legal cuts. Of more than 64 rows no cluster of four was ever the quickest.

    Numbers are bfloat16 if they are `wide`, else they have eight bits.
    Those that the model finds alike come by how many multiprocessors they keep busy, for what waits for memory waits
    the less the more of them ask. Then small clusters come first, and those that share lines.
    """
    found = () if lines % STORED_LINES else _fitting(kind, depth, wide)
    times = {cut: seconds(cut, lines, depth, rows) for cut in found}
    least = min(times.values(), default=0.0)
    alike = [cut for cut in found if times[cut] / least <= _ALIKE]

    def place(cut: PersistentTiling) -> tuple[float, ...]:
        slower = max(times[cut] / least, _ALIKE)
        return slower, -_busy(cut, lines, rows), cut.cluster, cut.across, times[cut], -cut.rows

    return sorted(found if len(alike) < most else alike, key=place)[:most]


@cache
def _fitting(kind: Kind, depth: int, wide: bool) -> tuple[PersistentTiling, ...]:
    """Return the legal cuts of weights of a depth, whatever lines they have."""
    return tuple([cut for cut in _candidates(kind, depth, wide) if fits(cut, STORED_LINES, depth)])


def seconds(cut: PersistentTiling, lines: int, depth: int, rows: int) -> float:
    """Return what the model says of a product."""
    outputs = lines // cut.halves
    tiles, ctas = cut.tiles(rows, outputs) * cut.cluster, cut.grid(rows, outputs, _PROCESSORS)[0]
    waves = -(-tiles // ctas)
    number_bytes = 1 + cut.wide
    compute = waves * cut.rows * cut.lines * depth * 2 * number_bytes / _FLOPS
    taken_in = (cut.height(rows) / cut.across + cut.lines / cut.share) * depth * number_bytes
    read = (lines * depth + rows * depth) * number_bytes + rows * outputs * _RESULT_BYTES
    return max(compute, tiles * taken_in / _CACHE_BYTES, read / _MEMORY_BYTES) + _LAUNCH_S


def fits(cut: PersistentTiling, lines: int, depth: int) -> bool:
    """Whether a multiprocessor has room for a cut, and it is one of its weight."""
    if cut.stages < _LEAST_STAGES or cut.shared_bytes > _SHARED_BYTES or cut.lines > _MOST_LINES:
        return False
    if depth % cut.depth or lines % STORED_LINES or cut.band % (STORED_LINES // cut.halves):
        return False
    # A thread holds half as many sums as lines; a quarter of a multiprocessor has a quarter of warps and registers.
    parts = -(-cut.threads // 128)
    beside = _BESIDE.get(cut.kind, 24) + (0 if cut.wide else _SCALES)
    if cut.lines // 2 + beside > _REGISTERS // 4 // 32 // parts:
        return False
    # CTAs that share lines load parts of a stage, of halves, or of a band where the swizzle begins. Lines of eight bits
    # may be more than bands have.
    eights = -(-cut.band // 8)
    return cut.subs % cut.share == 0 or cut.halves % cut.share == 0 or eights % cut.share == 0


def _busy(cut: PersistentTiling, lines: int, rows: int) -> float:
    """Return the share of the multiprocessors that has tiles, over all waves, in steps of four percent."""
    tiles = cut.tiles(rows, lines // cut.halves) * cut.cluster
    return round(25 * tiles / (-(-tiles // _PROCESSORS) * _PROCESSORS)) / 25


def _candidates(kind: Kind, depth: int, wide: bool) -> Iterator[PersistentTiling]:
    halves = 1 + (kind == Kind.GATED)
    bands = range(16, _MOST_LINES // halves + 1, STORED_LINES)
    for rows, band, (share, across) in product(_TILE_ROWS, bands, _PAIRS):
        cut = PersistentTiling(rows, band, 1, 1, kind, share, across, wide)
        stage = (cut.rows + cut.lines) * _SUB_BYTES
        subs = 2 if 2 * stage <= _STAGE_BYTES and depth % (2 * cut.depth) == 0 else 1
        stages = (_SHARED_BYTES - 1024) // (subs * stage + 16)
        yield cut._replace(subs=subs, stages=min(stages, _MOST_STAGES))
