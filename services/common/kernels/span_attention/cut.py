"""How attention is cut among the programs of a launch, by measurement on an H200."""

from typing import NamedTuple

import triton

from services.common.kernels.dispatch import INTERPRETED

_PROGRAMS, _PROGRAMS_ALONE = 264, 132
_STAGES, _STAGES_ALONE, _STAGES_HALVES = 3, 7, 8
_MOST_SPLITS, _MOST_SPLITS_ALONE = 64, 16
_INTERPRETED_SPLITS = 2
_FEW_ROWS, _ROWS = 16, 64
_PROMPT_TILE, _PROMPT_ROWS = 128, 1024
_TOKENS, _HALF_TOKENS = (16, 16) if INTERPRETED else (64, 32)
_FEW_GROUPS, _HALF_GROUPS = 8, 64
_SHORT_CONTEXT = 4096
_NARROW_HEAD_BYTES = 256


class Cut(NamedTuple):
    """Rows and positions of a tile, programs that share the positions of a group of rows, and each one's pipeline."""

    tile: int
    tokens: int
    splits: int
    stages: int = _STAGES
    warps: int = 4


def cut_span(rows: int, pairs: int, head_bytes: int, causal: bool, longest: int) -> Cut:
    """Return the cut for so many rows of each of `pairs` sequences and K/V heads, of `longest` positions at most."""
    if rows >= _PROMPT_ROWS:
        tiles = triton.cdiv(rows, _PROMPT_TILE)
        return Cut(_PROMPT_TILE, _TOKENS, split_count(pairs * tiles), warps=8)
    tile = min(_ROWS, max(_FEW_ROWS, int(triton.next_power_of_2(rows))))
    groups = pairs * triton.cdiv(rows, tile)
    splits = split_count(groups)
    narrow = head_bytes <= _NARROW_HEAD_BYTES
    if narrow and causal and rows <= _ROWS and _fits_alone(groups) and not _is_tiny(rows, groups, longest):
        return _few(rows, groups)
    if narrow and splits == 1 and not INTERPRETED and tile < _ROWS:
        return _many(tile, groups)
    return Cut(tile, _TOKENS, splits)


def split_count(groups: int, programs: int = _PROGRAMS) -> int:
    """Return how many programs, a power of two, share the positions of each group of rows."""
    wanted = _INTERPRETED_SPLITS if INTERPRETED else programs // groups
    return 1 << max(0, min(_MOST_SPLITS, wanted).bit_length() - 1)


def _is_tiny(rows: int, groups: int, longest: int) -> bool:
    """Whether one sequence has so few rows that many small programs are quicker: always, or over long contexts."""
    return groups <= _FEW_GROUPS and (rows <= _FEW_ROWS or (2 * rows <= _ROWS and longest > _SHORT_CONTEXT))


def _few(rows: int, groups: int) -> Cut:
    """So few groups that each program may have a multiprocessor of its own.

    A tile is padded to the 64 rows for which the matrix units read keys from shared memory. Fewer rows leave time for
    smaller tiles of positions, which are quicker where a program has few.
    """
    alone = split_count(groups, _PROGRAMS_ALONE)
    if 2 * rows > _ROWS or groups > _HALF_GROUPS:
        return Cut(_ROWS, _TOKENS, alone, _STAGES_ALONE)
    return Cut(_ROWS, _HALF_TOKENS, alone if groups <= _FEW_GROUPS else split_count(groups), _STAGES_HALVES)


def _fits_alone(groups: int) -> bool:
    """Whether every program may have a multiprocessor of its own.

    Usually two share one and hide each other's waits. One alone has room to ask three tiles ahead, which is quicker
    where it has several tiles even in a short context.
    """
    alone = split_count(groups, _PROGRAMS_ALONE)
    return alone <= _MOST_SPLITS_ALONE and groups * alone <= _PROGRAMS_ALONE


def _many(tile: int, groups: int) -> Cut:
    """More programs than places: small ones, of which many share a multiprocessor.

    In a single wave of them a tile is padded to the 64 rows for which the matrix units read keys from shared memory.
    """
    if tile == _FEW_ROWS:
        return Cut(tile, 64, 1, 2, 2)
    return Cut(_ROWS, 32, 1, 5) if groups <= _PROGRAMS else Cut(tile, 32, 1, 5, 2)
