"""Packed weights: their numbers, what kernels are built for them, and how products are cut."""

from __future__ import annotations

import re

import pytest
import torch

from services.common.kernels import nvrtc
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.int8_weight import quantised
from services.common.kernels.linear.packed.launch import source_of
from services.common.kernels.linear.packed.tiling import ROWS, PackedTiling, packed_cut
from services.common.kernels.linear.packed_weight import Codes, PackedWeight, packed, rounded_to_eight, rounded_to_four
from services.common.kernels.linear.weight import changed, joined, lines
from tests.bench.gpu.int8.eight import CTA_BYTES, PROCESSOR_BYTES, SHARED_BYTES
from tests.support.cases import each

SHAPES = (
    (6144, 4096, Kind.PLAIN), (4096, 4096, Kind.ADDED), (24576, 4096, Kind.GATED), (4096, 12288, Kind.ADDED),
    (2560, 9728, Kind.ADDED), (51200, 5120, Kind.GATED), (5120, 25600, Kind.ADDED), (256, 128, Kind.PLAIN),
)  # fmt: skip


def codes_of(outputs: int, depth: int) -> torch.Tensor:
    """Every number of e4m3, often."""
    codes = torch.arange(outputs * depth, dtype=torch.int64).mul_(37).remainder_(256).to(torch.uint8)
    codes[codes % 128 == 127] = 1
    return codes.view(outputs, depth).view(torch.float8_e4m3fn)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("block", [1, 8, 64, 96])
def test_numbers_are_codes_times_scales_rounded_once(block: int, groups: int) -> None:
    codes_FD = codes_of(192, 384)
    scale_FG = torch.rand(192 // block, groups, generator=torch.Generator().manual_seed(1)).add_(0.01)
    scale_FG = scale_FG.repeat_interleave(block, 0)
    weight = packed(Codes(codes_FD, scale_FG), torch.float32)
    assert weight is not None
    expected = (codes_FD.float() * scale_FG.repeat_interleave(384 // groups, 1)).bfloat16().float()
    assert torch.equal(weight.widened(), expected)
    assert weight.shift == {1: 0, 8: 3, 64: 6, 96: 5}[block] and not weight.short
    assert weight.nbytes == 192 * 384 + 4 * groups * (192 >> weight.shift)
    order = torch.randperm(192, generator=torch.Generator().manual_seed(2))
    turned = changed(weight, lambda part: part[order])
    assert not isinstance(turned, torch.Tensor) and torch.equal(turned.widened(), expected[order])


def test_parts_of_one_product_are_joined_whatever_their_scales_are() -> None:
    by_line = packed(Codes(codes_of(64, 256), torch.full((64, 1), 0.5)), torch.float32)
    by_group = packed(Codes(codes_of(32, 256), torch.tensor([[0.25, 0.5]]).expand(32, -1)), torch.float32)
    assert by_line is not None and by_group is not None
    both = joined([by_line, by_group])
    assert not isinstance(both, torch.Tensor) and both.shape == (96, 256)
    assert torch.equal(both.widened(), torch.cat((by_line.widened(), by_group.widened())))
    plain = joined([by_line, torch.ones(4, 256)])
    assert isinstance(plain, torch.Tensor) and torch.equal(plain[:64], by_line.widened())
    part = lines(both, 60, 70)
    assert not isinstance(part, torch.Tensor) and torch.equal(part.widened(), both.widened()[60:70])
    eight = quantised(torch.randn(8, 16))
    twice = joined([eight, eight])
    assert not isinstance(twice, torch.Tensor) and torch.equal(twice.widened()[8:], eight.widened())


def test_what_kernels_do_not_take_is_not_packed() -> None:
    scale = torch.ones(1, 1)
    assert packed(Codes(codes_of(24, 128), scale), torch.float32) is None, "lines of a gate and of what it gates"
    assert packed(Codes(codes_of(32, 64), scale), torch.float32) is None, "inputs of a swizzled row"
    assert packed(Codes(codes_of(32, 512), torch.ones(32, 2)), torch.float32) is None, "groups of 256"
    assert packed(Codes(codes_of(32, 128), scale * 128), torch.float32) is None, "scales times 2^120 beyond bfloat16"
    assert rounded_to_eight(torch.ones(64, 128)) is None


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("groups", [1, 4])
def test_numbers_of_four_bits_are_codes_less_zeros_times_scales_rounded_once(groups: int, short: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    codes_FD = torch.randint(0, 16, (48, 512), generator=generator, dtype=torch.uint8)
    zero_FG = torch.randint(0, 17, (48, groups), generator=generator, dtype=torch.uint8)
    scale_FG = torch.rand((48, groups), generator=generator).add_(0.01)
    scale_FG = (scale_FG.bfloat16() if short else scale_FG.half()).float()
    weight = packed(Codes(codes_FD, scale_FG, zero_FG), torch.float32)
    assert weight is not None and (weight.bits, weight.short, weight.shape) == (4, short, (48, 512))
    less = codes_FD.float() - zero_FG.repeat_interleave(512 // groups, 1).float()
    expected = (less * scale_FG.repeat_interleave(512 // groups, 1)).bfloat16().float()
    assert torch.equal(weight.widened(), expected)
    assert weight.nbytes == 48 * 256 + 4 * 48 * groups
    both = joined([weight, weight])
    assert isinstance(both, PackedWeight) and torch.equal(both.widened()[48:], expected)
    assert packed(Codes(codes_FD, scale_FG * 1.0001, zero_FG), torch.float32) is None, "scales of more digits"
    assert packed(Codes(codes_FD[:, :128], scale_FG[:, :1], zero_FG[:, :1]), torch.float32) is None, "half a row"


@pytest.mark.parametrize("symmetric", [True, False])
def test_rounding_a_weight_to_four_bits_errs_as_they_do(symmetric: bool) -> None:
    numbers_FD = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
    weight = rounded_to_four(numbers_FD, symmetric)
    assert weight is not None
    assert 0.08 < float((weight.widened() - numbers_FD).float().norm() / numbers_FD.float().norm()) < 0.13


def test_parts_of_other_bits_are_widened_where_they_are_joined() -> None:
    numbers_FD = torch.randn(128, 256, generator=torch.Generator().manual_seed(3))
    eight, four = rounded_to_eight(numbers_FD), rounded_to_four(numbers_FD)
    assert eight is not None and four is not None
    both = joined([eight, four])
    assert isinstance(both, torch.Tensor) and torch.equal(both[128:], four.widened())


def test_rounding_a_weight_errs_as_three_bits_do() -> None:
    numbers_FD = torch.randn(256, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
    weight = rounded_to_eight(numbers_FD)
    assert weight is not None and weight.short and weight.shift == 7
    assert 0.02 < float((weight.widened() - numbers_FD).float().norm() / numbers_FD.float().norm()) < 0.03


@each(("bits", "fine"), [(8, True), (8, False), (4, True)])
@each("rows", [1, 16, 17, 64, 128])
@each(("lines", "depth", "kind"), SHAPES)
def test_a_cut_fits_a_multiprocessor_and_covers_the_weight(
    lines: int, depth: int, kind: Kind, rows: int, bits: int, fine: bool
) -> None:
    if depth % (1024 // bits):
        return  # half a swizzled row
    for groups in (1, depth // 128):
        cut = packed_cut(lines, depth, rows, kind, groups, fine, True, bits)
        if cut is None:
            assert rows > 32 and fine, "scales of each line leave no room for two stages of many rows"
            continue
        assert cut.rows == next(most for most in ROWS if most >= rows) and cut.row_box % 8 == 0
        room = cut.shared_bytes + cut.squares_bytes
        assert room <= SHARED_BYTES and cut.ctas * (room + CTA_BYTES) <= PROCESSOR_BYTES
        (ctas, _), steps = cut.grid(lines), depth // cut.depth
        assert ctas % cut.cluster == 0 and (ctas - cut.cluster) * cut.lines < lines <= ctas * cut.lines
        assert cut.lines % (8 * (1 + (kind == Kind.GATED))) == 0
        assert cut.lines <= cut.warps * 16 < cut.lines + 64
        assert steps % cut.subs == 0 and cut.stages <= steps // cut.subs and cut.threads <= 416


@pytest.mark.parametrize("bits", [8, 4])
def test_rings_of_up_to_eight_rows_leave_room_for_the_product_behind(bits: int) -> None:
    for outputs, depth, kind in SHAPES[:2]:
        for rows in (1, 8, 16):
            cut = packed_cut(outputs, depth, rows, kind, depth // 128, False, True, bits)
            assert cut is not None and cut.stages >= 3
            assert cut.stages * cut.stage_bytes < PROCESSOR_BYTES * (0.5 if rows < 16 else 0.65)


def test_other_products_have_no_cut() -> None:
    refused: list[PackedTiling | None] = [
        packed_cut(6144, 4096, 129, Kind.PLAIN, 1, False, True), packed_cut(6140, 4096, 8, Kind.PLAIN, 1, False, True),
        packed_cut(6152, 4096, 8, Kind.GATED, 1, False, True), packed_cut(6144, 4096, 8, Kind.GATES, 1, False, True),
        packed_cut(6144, 4160, 8, Kind.PLAIN, 1, False, True), packed_cut(6144, 4224, 8, Kind.PLAIN, 1, True, True, 4),
    ]  # fmt: skip
    assert refused == [None] * 6


def test_what_is_cut_compiles_without_spilling(full: bool) -> None:
    wanted = [
        (shape, rows, *scales)
        for shape in SHAPES[:-1] for rows in ROWS
        for scales in ((False, True, 8), (True, False, 8), (True, True, 8), (True, False, 4), (True, True, 4))
    ]  # fmt: skip
    for (outputs, depth, kind), rows, fine, short, bits in wanted if full else wanted[1::37]:
        cut = packed_cut(outputs, depth, rows, kind, depth // 128, fine, short, bits)
        if cut is None:
            continue
        for fused in {False, bits == 4 and short}:
            source = source_of(cut._replace(fused=fused))
            said = nvrtc.report(source.text, "product", source.headers())
            assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", said), f"{cut}: {said}"
            assert "serialized" not in said, "products wait for one another"
