"""How rows are divided among CTAs, of which a multiprocessor has one."""

from typing import NamedTuple

from services.common.kernels.span_attention.cut import PROCESSORS

ROWS = 64
"""Of a warpgroup."""
SPLITS = 16
"""Of what a row sees, at most, on a GPU."""
_FEW_ROWS = 16
_NARROWEST, _NARROW, SIZES = 64, 128, (128, 256)
_BLOCK_ROWS = 16
"""Of a drafter, at most: a warpgroup's threads hold them while they wait for a tile."""
_SHORT_ROOM = 2048
"""Positions that sequences may have, up to which two programs gain less than leaving and merging parts takes."""


class TileCut(NamedTuple):
    """Programs that share the splits of a CTA's rows, how many times 64 these are, and items that a CTA takes at once.

    An item is rows of one sequence and K/V head. `spread` CTAs take one together, which has all rows of both: they
    load keys for one another, and each has some columns of the values.
    """

    programs: int
    row_groups: int = 1
    items: int = 1
    spread: int = 1


def cut_tiles(rows: int, pairs: int, size: int, short: bool = False) -> TileCut | None:
    """Return the cut for so many rows of each of `pairs` sequences and K/V heads; None where Triton's programs serve.

    Prompts have enough rows for all multiprocessors, and heads narrow enough for two warpgroups with rows of their own.
    Many sequences have enough items, and a multiprocessor takes two at once: one alone waits for its tiles. Other rows
    share their splits among so many CTAs as run at once. Items of short contexts that fill up to half of a GPU are
    taken by two CTAs each, and share no splits. Triton is as fast for few rows of very many sequences, and faster for
    one sequence. It is faster for a short context of wide heads that all programs share: it starts sooner.
    """
    groups, narrow = pairs * -(-rows // ROWS), size == _NARROW
    many = groups > PROCESSORS
    if size not in SIZES or (rows <= _FEW_ROWS and not (many and narrow and groups <= 2 * PROCESSORS)):
        return None
    if many and narrow and rows <= ROWS:
        return TileCut(1, 1, 2)
    if many:
        return TileCut(1, 2 if narrow else 1)
    if short and rows <= ROWS and _spread(groups, size):
        return TileCut(1, spread=2)
    if narrow and SPLITS // 2 * groups <= PROCESSORS:
        return None
    if short and 2 * SPLITS * groups <= PROCESSORS:
        return None
    if short and narrow and groups * 4 > PROCESSORS:
        return TileCut(1)
    return TileCut(max(min(SPLITS, PROCESSORS // groups), 1))


def cut_blocks(width: int, group: int, pairs: int, size: int, room: int) -> TileCut | None:
    """Return the cut of drafters' blocks of `width` rows behind up to `room` positions; None where Triton serves.

    Its programs read the tiles that hold a block without a pipeline. So blocks of few rows of many sequences gain, too.
    Where contexts cannot be long, two CTAs take an item together.
    """
    if size != _NARROW or width > _BLOCK_ROWS or width * group > ROWS:
        return None
    if pairs > PROCESSORS:
        return TileCut(1, 1, 2)
    if width * group <= _FEW_ROWS:
        return None
    if room <= _SHORT_ROOM and _spread(pairs, size):
        return TileCut(1, spread=2)
    if pairs * 4 <= PROCESSORS:
        return None
    return TileCut(max(PROCESSORS // pairs, 1))


def cut_codes(rows: int, pairs: int, size: int, short: bool = False) -> TileCut | None:
    """Return the cut of rows that attend to codes; None where Triton's programs serve.

    Prompts behind long contexts gain, and rounds of few sequences with such. Steps of prompts serve short contexts,
    too. Others were not timed, or start sooner there.
    """
    groups = pairs * -(-rows // ROWS)
    if size != _NARROW:
        return None
    if rows > ROWS and groups > PROCESSORS:
        return TileCut(1, 2)
    if short or rows > ROWS or groups * 2 > PROCESSORS:
        return None
    return TileCut(min(SPLITS, PROCESSORS // groups))


def cut_trees(rows: int, pairs: int, size: int, short: bool = False) -> TileCut | None:
    """Return the cut of trees; None where Triton's programs serve.

    Of the narrowest heads a CTA takes an item, but few items gain more by splits that many share, and of long contexts
    more do. Of others two CTAs take one wherever they do so for chains, and of more items, however long, one after
    another: Triton's programs of many sequences read what stands before the nodes again and again, and have parts to
    merge.
    """
    if rows > ROWS or size not in (_NARROWEST, _NARROW):
        return None
    if size == _NARROWEST:
        return TileCut(1) if pairs * (6 if short else 2) > PROCESSORS else None
    return TileCut(1, spread=2) if pairs * 4 > PROCESSORS or (short and _spread(pairs, size)) else None


def _spread(items: int, size: int) -> bool:
    """Whether two CTAs take an item of a short context. So many run at once; fewer items gain more by shared splits."""
    return size == _NARROW and PROCESSORS // SPLITS < items <= PROCESSORS // 2
