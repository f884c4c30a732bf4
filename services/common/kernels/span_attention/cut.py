"""How attention is divided among the programs of a launch, by measurement on an H200."""

from typing import NamedTuple

import triton

from services.common.kernels.dispatch import INTERPRETED

_PROGRAMS, _PROGRAMS_ALONE = 264, 132
_STAGES, _STAGES_ALONE = 3, 7
_MOST_SPLITS, _MOST_SPLITS_ALONE = 64, 16
_INTERPRETED_SPLITS = 2
_FEW_ROWS, _ROWS = 16, 64
_PROMPT_TILE, _PROMPT_ROWS = 128, 1024
_TOKENS, _HALF_TOKENS = (16, 16) if INTERPRETED else (64, 32)
_NARROW_HEAD_BYTES = 256


class Cut(NamedTuple):
    """Rows and positions of a tile, programs that share the positions of a group of rows, and each one's pipeline."""

    tile: int
    tokens: int
    splits: int
    stages: int = _STAGES
    warps: int = 4


def cut_span(rows: int, pairs: int, head_bytes: int, causal: bool) -> Cut:
    """Return the cut for so many rows of each of `pairs` sequences and K/V heads."""
    if rows >= _PROMPT_ROWS:
        tiles = triton.cdiv(rows, _PROMPT_TILE)
        return Cut(_PROMPT_TILE, _TOKENS, split_count(pairs * tiles), warps=8)
    tile = min(_ROWS, max(_FEW_ROWS, int(triton.next_power_of_2(rows))))
    groups = pairs * triton.cdiv(rows, tile)
    splits = split_count(groups)
    narrow = head_bytes <= _NARROW_HEAD_BYTES
    if narrow and causal and rows <= _ROWS and _fits_alone(groups):
        return Cut(_ROWS, _TOKENS, split_count(groups, _PROGRAMS_ALONE), _STAGES_ALONE)
    if narrow and splits == 1 and not INTERPRETED and tile < _ROWS:
        return _many(tile, groups)
    return Cut(tile, _TOKENS, splits)


def split_count(groups: int, programs: int = _PROGRAMS) -> int:
    """Return how many programs, a power of two, share the positions of each group of rows."""
    wanted = _INTERPRETED_SPLITS if INTERPRETED else programs // groups
    return 1 << max(0, min(_MOST_SPLITS, wanted).bit_length() - 1)


def _fits_alone(groups: int) -> bool:
    """Whether every program may have a multiprocessor of its own.

    Usually two programs share a multiprocessor and hide each other's waits. A program alone has room to load three
    tiles ahead. Its tile is padded to the 64 rows for which the matrix units read keys from shared memory.
    """
    alone = split_count(groups, _PROGRAMS_ALONE)
    return alone <= _MOST_SPLITS_ALONE and groups * alone <= _PROGRAMS_ALONE


def _many(tile: int, groups: int) -> Cut:
    """Return the cut for more programs than multiprocessors: padded tiles if all run in one wave, else small ones."""
    if groups <= _PROGRAMS:
        return Cut(_ROWS, _TOKENS, 1)
    return Cut(tile, _TOKENS, 1, 2, 2) if tile == _FEW_ROWS else Cut(tile, _HALF_TOKENS, 1, 5, 2)
