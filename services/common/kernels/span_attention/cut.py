"""How attention is divided among the programs of a launch, by measurement on an H200; no division changes a bit."""

from typing import NamedTuple

import triton

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.span_attention.splits import MOST_SPLITS

PROCESSORS = 132
_STAGES, _STAGES_SHARED, _STAGES_ALONE = 3, 5, 7
_FEW_ROWS, _ROWS = 16, 16 if INTERPRETED else 64
_PROMPT_ROWS = 1024
_WIDE_ROWS = 16 if INTERPRETED else 32
_NARROW_HEAD_BYTES = 256
_WIDEST, _STAGES_WIDEST = 256, 2


class Cut(NamedTuple):
    """Rows of a tile, the programs that share the splits of such a group of rows, and each one's pipeline.

    With as many programs as a row sees splits at most, each has one split.
    """

    tile: int
    programs: int
    stages: int = _STAGES
    warps: int = 4


def cut_span(rows: int, pairs: int, head_bytes: int, short: bool = False) -> Cut:
    """Return the cut for so many rows of each of `pairs` sequences and K/V heads, whose contexts may be `short`.

    Few rows are padded to the 64 for which the matrix units read keys from shared memory, unless more programs wait
    than run at once. A program alone on a multiprocessor has room to load tiles ahead. Groups of rows that fill a
    quarter of the multiprocessors are shared by no more programs than these are, and share no short context: leaving
    and merging parts would take longer than its tiles. Parts of few rows are small, so these share contexts of all
    lengths.
    """
    narrow = head_bytes <= _NARROW_HEAD_BYTES
    few = rows <= _FEW_ROWS and narrow
    if few and pairs > 2 * PROCESSORS:
        return Cut(_FEW_ROWS, 1, 2, 2)
    if few and pairs * 2 <= PROCESSORS < pairs * MOST_SPLITS:
        return Cut(_FEW_ROWS, MOST_SPLITS // 2 if pairs * 4 > PROCESSORS else MOST_SPLITS, _STAGES, 2)
    tile, warps = (_ROWS, 4) if narrow else _wide_tile(rows, pairs)
    groups = pairs * triton.cdiv(rows, tile)
    if groups * 2 > PROCESSORS:
        return Cut(tile, 1, _STAGES_ALONE if narrow and groups <= PROCESSORS else _STAGES, warps)
    if groups * 4 > PROCESSORS and narrow:
        return Cut(tile, 1, _STAGES_ALONE) if short else Cut(tile, PROCESSORS // groups, _STAGES_SHARED)
    return Cut(tile, MOST_SPLITS, _STAGES_ALONE if narrow and groups * MOST_SPLITS <= PROCESSORS else _STAGES, warps)


def cut_heads(size: int, cut: Cut) -> Cut:
    """Return the cut for heads of `size`: of the widest, registers and shared memory hold few rows and one tile."""
    if size <= _WIDEST:
        return cut
    return cut._replace(tile=min(cut.tile, _WIDE_ROWS), stages=_STAGES_WIDEST, warps=8)


def _wide_tile(rows: int, pairs: int) -> tuple[int, int]:
    """Return rows of a tile and warps, for which registers hold the sums of wide heads; only prompts fill 64 rows."""
    if pairs * triton.cdiv(rows, _ROWS) > PROCESSORS and rows >= _PROMPT_ROWS:
        return _ROWS, 8
    tile = min(_WIDE_ROWS, max(_FEW_ROWS, int(triton.next_power_of_2(rows))))
    return tile, 4 if tile == _FEW_ROWS else 8
