"""How attention in CUDA C++ is cut, and what its compiler is given."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from unittest.mock import patch

import pytest
import torch

from services.common.kernels.span_attention import Mask, hopper, plan_span
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.hopper.cut import (
    ROWS,
    SIZES,
    SPLITS,
    TileCut,
    cut_blocks,
    cut_codes,
    cut_tiles,
    cut_trees,
)
from services.common.kernels.span_attention.hopper.source import NARROW_NODES, Shape
from services.common.kernels.span_attention.span import OPEN
from tests.support.cases import each

MOST_SHARED = 227 * 1024
LONG = 32_768
SHAPES = [
    Shape(size, 4, block, groups, alone)
    for size, block, groups, alone in product(SIZES, (8, 16, 32, 64, 128), (1, 2), (False, True))
    if groups == 1 or (size == 128 and alone)
]
SHAPES += [Shape(128, 4, block, 1, True, items=2) for block in (8, 16, 32, 64, 128)]
SHAPES += [Shape(128, 4, 16, 1, items == 2 or alone, items, True) for alone in (False, True) for items in (1, 2)]
SHAPES += [Shape(128, 4, 16, 1, True, 2, in_block, 1, True) for in_block in (False, True)]
SHAPES += [Shape(128, 4, 16, 1, True, in_block=in_block, spread=2) for in_block in (False, True)]
SHAPES += [Shape(128, group, 16, 1, True, spread=2, nodes=True) for group in (1, 4, 16)]
SHAPES += [Shape(128, 4, block, 1, alone, codes=True) for block in (8, 16, 128) for alone in (False, True)]
SHAPES += [Shape(128, 4, 16, 1, True, halves=1, ranked=True, kv_heads=16, codes=True)]
SHAPES += [Shape(128, 4, 16, 1, False, codes=True, counted=counted) for counted in (8, 16, 32)]
SHAPES += [Shape(128, 4, 16, 2, True, kv_heads=heads, codes=True) for heads in (2, 8)]
SHAPES += [Shape(64, group, block, 1, True, nodes=True) for group in (1, 3, 8) for block in (8, 16, 128)]


@pytest.mark.parametrize("size", SIZES)
def test_shared_rows_run_at_once(size: int) -> None:
    """A program that waits for another's multiprocessor would take twice the time."""
    for rows, pairs, short in product((20, 32, 64, 128, 512), (1, 4, 8, 16, 33, 64, 128), (False, True)):
        cut = cut_tiles(rows, pairs, size, short)
        groups = pairs * -(-rows // ROWS)
        if cut and cut.programs > 1:
            assert cut.row_groups == 1
            assert groups * cut.programs <= PROCESSORS


def test_short_contexts_of_half_the_processors_are_not_shared() -> None:
    assert cut_tiles(64, 64, 128, short=True) == TileCut(1, spread=2)
    assert cut_tiles(64, 72, 128, short=True) == TileCut(1)
    assert cut_tiles(64, 64, 128) == TileCut(2)
    assert cut_tiles(64, 32, 128, short=True) == cut_tiles(64, 16, 128, short=True) == TileCut(1, spread=2)
    assert cut_tiles(64, 32, 128) == TileCut(4)


def test_trees_of_many_sequences_are_taken_by_two_ctas_each() -> None:
    assert cut_trees(64, 64, 128) == cut_trees(64, 256, 128) == TileCut(1, spread=2)
    assert cut_trees(64, 16, 128, short=True) == TileCut(1, spread=2)
    assert cut_trees(64, 16, 128) is cut_trees(64, 8, 128, short=True) is None
    assert cut_trees(65, 64, 128) is None


def test_a_cta_takes_a_tree_of_narrow_heads_where_there_are_many() -> None:
    assert cut_trees(48, 96, 64) == cut_trees(24, 384, 64, short=True) == TileCut(1)
    assert cut_trees(48, 24, 64, short=True) == TileCut(1)
    assert cut_trees(48, 12, 64, short=True) is cut_trees(48, 48, 64) is cut_trees(65, 96, 64) is None


def test_two_ctas_take_up_to_64_rows() -> None:
    assert cut_tiles(128, 16, 128, short=True) == cut_tiles(128, 16, 128) == TileCut(4)
    assert cut_tiles(128, 32, 128, short=True) == TileCut(1)


def test_codes_of_long_contexts_of_few_sequences_are_shared_by_all_processors() -> None:
    for rows, pairs in product((4, 16, 64), (1, 8, 16, 33, 64, 66)):
        cut = cut_codes(rows, pairs, 128)
        assert cut is not None and 2 <= cut.programs <= SPLITS and pairs * cut.programs <= PROCESSORS
        assert cut_codes(rows, pairs, 128, short=True) is None
    assert cut_codes(64, 72, 128) is cut_codes(4, 256, 128) is cut_codes(64, 64, 256) is None


def test_codes_of_prompts_are_read_for_128_rows_at_once() -> None:
    assert cut_codes(8192, 8, 128) == cut_codes(8192, 8, 128, short=True) == TileCut(1, 2)
    assert cut_codes(128, 8, 128) is cut_codes(8192, 8, 256) is None


def test_triton_keeps_few_rows_and_other_heads() -> None:
    assert cut_tiles(16, 64, 128) is None
    assert cut_tiles(64, 64, 64) is None


def test_triton_keeps_narrow_heads_of_few_sequences() -> None:
    assert cut_tiles(64, 8, 128) is cut_tiles(64, 16, 128) is None
    assert cut_tiles(64, 128, 128) == TileCut(1)


def test_items_of_many_sequences_are_taken_two_at_a_time() -> None:
    """One alone waits for its tiles."""
    assert cut_tiles(32, 256, 128) == cut_tiles(64, 1024, 128) == cut_tiles(4, 256, 128) == TileCut(1, 1, 2)
    assert cut_tiles(16, 512, 128) is None
    assert cut_tiles(64, 256, 256) == TileCut(1)


def test_triton_keeps_one_short_context_of_wide_heads() -> None:
    assert cut_tiles(64, 4, 256, short=True) is None
    assert cut_tiles(64, 4, 256) == TileCut(16)
    assert cut_tiles(64, 8, 256, short=True) == cut_tiles(64, 8, 256) == TileCut(16)
    assert cut_tiles(64, 128, 256) == TileCut(1)


def test_prompts_give_two_warpgroups_rows_unless_heads_are_wide() -> None:
    assert cut_tiles(8192, 8, 128) == TileCut(1, 2)
    assert cut_tiles(8192, 4, 256) == TileCut(1)


def test_blocks_of_many_drafts_are_taken_two_at_a_time() -> None:
    assert cut_blocks(4, 4, 1024, 128, LONG) == cut_blocks(16, 4, 256, 128, LONG) == TileCut(1, 1, 2)


def test_blocks_of_fewer_drafts_share_the_processors() -> None:
    assert cut_blocks(16, 4, 128, 128, LONG) == cut_blocks(8, 4, 128, 128, LONG) == TileCut(1)
    assert cut_blocks(16, 4, 64, 128, LONG) == TileCut(2)


def test_blocks_whose_contexts_cannot_be_long_share_none() -> None:
    assert [cut_blocks(16, 4, 64, 128, room) for room in (2048, 2064)] == [TileCut(1, spread=2), TileCut(2)]
    assert [cut_blocks(16, 4, 16, 128, room) for room in (2048, 2064)] == [TileCut(1, spread=2), None]
    assert cut_blocks(16, 4, 8, 128, 2048) is None


def test_triton_keeps_few_drafts_long_blocks_and_other_heads() -> None:
    assert cut_blocks(16, 4, 32, 128, LONG) is cut_blocks(4, 4, 128, 128, LONG) is None
    assert cut_blocks(17, 1, 1024, 128, LONG) is cut_blocks(16, 8, 1024, 128, LONG) is None
    assert cut_blocks(16, 4, 1024, 256, LONG) is None


@each("shape", SHAPES)
def test_a_cta_fits_a_multiprocessor(shape: Shape) -> None:
    assert shape.shared_bytes <= MOST_SHARED
    assert (shape.code_stages if shape.counted else shape.stages) >= 3
    largest = 640 if shape.spread > 1 or shape.apart or shape.counted else 512
    assert shape.threads % 32 == 0 and shape.threads <= largest


def shape_of(rows: int, sequences: int, cut: TileCut, *, ranked: bool) -> Shape:
    lengths_B = torch.zeros(sequences, dtype=torch.int64)
    span = plan_span(torch.ones(sequences, 1, dtype=torch.int32), lengths_B, rows // 4, 16)
    ranks_B2 = torch.zeros(sequences, 2, dtype=torch.int32) if ranked else None
    q_BWHD, kv_2NSHD = torch.empty(sequences, rows // 4, 32, 128), torch.empty(2, 2, 16, 8, 128)
    return hopper._shape(q_BWHD, kv_2NSHD, replace(span, ranks_B2=ranks_B2), cut, False)


def test_up_to_half_of_the_rows_are_weighed_without_the_other() -> None:
    halves = {rows: shape_of(rows, 2, TileCut(1, 1, 2), ranked=False).halves for rows in (4, 32, 36, 64, 128)}
    assert halves == {4: 1, 32: 1, 36: 2, 64: 2, 128: 2}


def test_products_of_codes_have_few_sizes_of_rows() -> None:
    counted = [hopper._counted(rows) for rows in (1, 8, 9, 16, 17, 32, 33, 64, 65, 256)]
    assert counted == [8, 8, 16, 16, 32, 32, 0, 0, 0, 0]


def test_sequences_come_sorted_where_each_is_a_line_of_items() -> None:
    assert shape_of(64, 2, TileCut(1, 1, 2), ranked=True).ranked
    assert not shape_of(64, 2, TileCut(1, 1, 2), ranked=False).ranked
    assert not shape_of(128, 2, TileCut(1, 1, 2), ranked=True).ranked
    assert shape_of(128, 2, TileCut(1, 2), ranked=True).ranked
    assert not shape_of(64, 2, TileCut(2), ranked=True).ranked


def test_ctas_that_take_an_item_together_share_no_splits() -> None:
    shape = shape_of(64, 8, cut_tiles(64, 64, 128, short=True) or TileCut(1), ranked=True)
    assert (shape.spread, shape.alone, shape.ranked) == (2, True, False)


def trees_cut(
    size: int, width: int, *, sequences: int = 64, group: int = 3, block: int = 16, dtype: torch.dtype = torch.bfloat16
) -> TileCut | None:
    """The cut of trees on a GPU that takes all kernels, of three K/V heads and any context."""
    table = torch.ones(sequences, 4, dtype=torch.int32)
    span = plan_span(table, torch.zeros(sequences, dtype=torch.int64), width, block)
    q_BWHD = torch.empty(sequences, width, 3 * group, size, dtype=dtype, device="meta")
    kv_2NSHD = torch.empty(2, 2, block, 3, size, dtype=dtype, device="meta")
    with patch.object(torch.Tensor, "is_cuda", True), patch.object(hopper, "_usable", lambda *_: True):
        return hopper.tree_tiles_of(q_BWHD, kv_2NSHD, span)


def test_only_trees_of_measured_shapes_leave_triton() -> None:
    assert trees_cut(64, 16) == trees_cut(64, NARROW_NODES) == TileCut(1)
    assert trees_cut(128, 16) == TileCut(1, spread=2)
    others = [trees_cut(size, 16) for size in (16, 32, 80, 96, 112, 192, 256, 512)]
    others += [trees_cut(64, width, group=1) for width in (NARROW_NODES + 1, 32, 63)]
    others += [trees_cut(64, 16, group=5), trees_cut(64, 16, sequences=1), trees_cut(64, 16, sequences=8)]
    others += [trees_cut(64, 16, block=block) for block in (4, 12, 24, 48, 96)]
    others += [trees_cut(64, 16, dtype=dtype) for dtype in (torch.float32, torch.float16)]
    assert set(others) == {None}


def codes_cut(
    size: int = 128, *, rows: torch.dtype = torch.bfloat16, kept: torch.dtype = torch.int8, block: int = 16,
    kv_heads: int = 8, first: int = 0, mask: Mask = OPEN,
) -> TileCut | None:  # fmt: skip
    """The cut of sixteen rows of eight sequences, whose exponents begin anywhere, on a GPU that takes all kernels."""
    span = plan_span(torch.ones(8, 4, dtype=torch.int32), torch.zeros(8, dtype=torch.int64), 16, block)
    q_BWHD = torch.empty(8, 16, 4 * kv_heads, size, dtype=rows, device="meta")
    kv_2NSHD = torch.empty(2, 2, block, kv_heads, size, dtype=kept, device="meta")
    exponents_2NSH = torch.empty(first + kv_2NSHD[..., 0].numel(), dtype=torch.int8)[first:].view(kv_2NSHD.shape[:-1])
    with patch.object(torch.Tensor, "is_cuda", True), patch.object(hopper, "_usable", lambda *_: True):
        return hopper.tiles_of(q_BWHD, kv_2NSHD, replace(span, mask=mask), None, exponents_2NSH)


def test_codes_that_no_copy_engine_fetches_stay_with_triton() -> None:
    """So do other types, head sizes and blocks, and rows that see a window."""
    assert codes_cut() == TileCut(2) and codes_cut(kv_heads=1) == TileCut(16)
    others = [codes_cut(size) for size in (64, 80, 96, 256)]
    others += [codes_cut(rows=kind) for kind in (torch.float32, torch.float16)]
    others += [codes_cut(kept=kind) for kind in (torch.bfloat16, torch.uint8)]
    others += [codes_cut(block=block) for block in (4, 12, 48, 96)]
    others += [codes_cut(block=8, kv_heads=1), codes_cut(first=1), codes_cut(first=8), codes_cut(mask=Mask(1024))]
    assert set(others) == {None}


def test_no_row_on_a_cpu_asks_for_a_gpu() -> None:
    table, lengths = torch.ones(64, 4, dtype=torch.int32), torch.zeros(64, dtype=torch.int64)
    with patch.object(torch.cuda, "get_device_capability", lambda *_: pytest.fail("there is no GPU")):
        for size, width in product((64, 128, 256), (1, 16, 64)):
            span = plan_span(table, lengths, width, 16)
            q_BWHD, kv_2NSHD = torch.empty(64, width, 8, size).bfloat16(), torch.empty(2, 2, 16, 8, size).bfloat16()
            assert hopper.tree_tiles_of(q_BWHD, kv_2NSHD, span) is hopper.tiles_of(q_BWHD, kv_2NSHD, span) is None
