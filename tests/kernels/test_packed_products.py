"""Packed weights: their numbers, what kernels are built for them, and how products are cut."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch

from services.common.kernels import nvrtc
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.int8_weight import quantised
from services.common.kernels.linear.packed.source import source_of
from services.common.kernels.linear.packed.tiling import PackedTiling, Packing, packed_cut
from services.common.kernels.linear.packed_weight import Codes, PackedWeight, packed, rounded_to_eight, rounded_to_four
from services.common.kernels.linear.weight import changed, joined, lines
from tests.bench.gpu.int8.eight import SHARED_BYTES

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


def taken_by_lanes(weight: PackedWeight) -> torch.Tensor:
    """Return codes as lanes take them: [lines, instructions of sixteen inputs, lanes of a line, places of a lane].

    The places are inputs 2c, 2c + 1, 2c + 8 and 2c + 9 of lane c, as a matrix instruction has them. A lane takes
    sixteen bytes of each half of a row of 128, beside those of its neighbours.
    """
    words = weight.codes_FB.view(len(weight), -1, 2, 4, 4, 4).long()  # rows, halves, lanes, words, bytes
    if weight.bits == 8:  # upper bytes of half words first
        four = torch.stack([words[..., byte] for byte in (1, 3, 0, 2)], -1)[..., None, :]
    else:  # of each half word a byte for each of two instructions, its lower half first
        four = torch.stack(
            [torch.stack([words[..., at + half] >> shift & 15 for shift in (0, 4) for half in (0, 2)], -1)
             for at in (0, 1)], -2,
        )  # fmt: skip
    # rows, halves, lanes, words, instructions of a word, places: the lane goes behind the instruction.
    return four.permute(0, 1, 2, 4, 5, 3, 6).reshape(len(weight), -1, 4, 4)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_lane_takes_the_inputs_of_one_instruction_after_the_other(bits: int) -> None:
    codes_FD = codes_of(16, 512).view(torch.uint8) if bits == 8 else codes_of(16, 512).view(torch.uint8) % 16
    zero_FG = None if bits == 8 else torch.zeros(16, 4, dtype=torch.uint8)
    codes = codes_FD.view(torch.float8_e4m3fn) if bits == 8 else codes_FD
    weight = packed(Codes(codes, torch.ones(16, 4), zero_FG), torch.float32)
    assert weight is not None
    lane = torch.arange(4)[:, None] * 2 + torch.tensor([0, 1, 8, 9])
    inputs = torch.arange(32)[:, None, None] * 16 + lane
    assert torch.equal(taken_by_lanes(weight), codes_FD.long()[:, inputs])


ROWS = (1, 16, 17, 33, 64, 65, 128, 129, 512, 4096)
PACKINGS = Packing(8, 0, False, True), Packing(8, 1, True, False), Packing(4, 0, True, False)
"""Scales of blocks, of lines, and of groups; 0 stands for all groups of a depth."""


def coded(lines: int, depth: int, kind: Kind, rows: int, packing: Packing) -> PackedTiling | None:
    return packed_cut(lines, depth, rows, kind, packing._replace(groups=packing.groups or depth // 128))


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("lines", "depth", "kind"), SHAPES)
def test_a_tile_of_codes_fits_and_covers_its_weight(lines: int, depth: int, kind: Kind, packing: Packing) -> None:
    for rows in ROWS if depth % (1024 // packing.bits) == 0 else ():
        cut = coded(lines, depth, kind, rows, packing)
        assert cut is not None and cut.shared_bytes <= SHARED_BYTES and min(cut.stages, cut.boxes, cut.wides) >= 2
        assert cut.band % 8 == 0 and cut.lines <= 192
        used, (ctas, _) = cut.height(rows), cut.grid(rows, lines)
        assert used % 8 == 0 and used <= cut.held <= cut.rows and ctas <= 132
        assert -(-rows // used) == -(-rows // cut.rows), "tiles of rows share out evenly what there is"
        inputs = 64 * cut.subs
        assert depth % cut.depth == 0 and cut.depth % inputs == 0, "whole boxes of codes, of whole steps"
        assert cut.warps % cut.turns == 0 and cut.turns < cut.wides, "a turn widens while another step is multiplied"
        # Four schedulers have registers for as many warps each.
        assert cut.lines // 2 + 26 <= 65_536 // 4 // 32 // -(-cut.threads // 128)
        # A matrix instruction reads 64 rows, held or not, of memory that there is.
        assert (cut.rows - cut.held) * 128 <= cut.boxes * cut.box_bytes + cut.wides * cut.wide_bytes


def test_other_products_have_no_cut() -> None:
    eight, four = Packing(8, 1, False, True), Packing(4, 1, True, True)
    assert packed_cut(6140, 4096, 8, Kind.PLAIN, eight) is None, "lines of an instruction"
    assert packed_cut(6152, 4096, 8, Kind.GATED, eight) is None, "lines of a half"
    assert packed_cut(6144, 4096, 8, Kind.BEST, eight) is None
    assert packed_cut(6144, 4128, 8, Kind.PLAIN, eight) is None and packed_cut(6144, 4160, 8, Kind.PLAIN, four) is None


def test_prompts_have_few_kernels() -> None:
    cuts = {coded(24576, 4096, Kind.GATED, rows, PACKINGS[0]) for rows in range(129, 8193)}
    assert len(cuts) <= 6


def test_what_is_widened_beside_tiles_compiles_without_spilling(full: bool) -> None:
    wanted = list(product(SHAPES[:-1], ROWS, PACKINGS))
    for (outputs, depth, kind), rows, packing in wanted if full else wanted[3::83]:
        cut = coded(outputs, depth, kind, rows, packing)
        if cut is None:
            continue  # half a row of codes
        source = source_of(cut)
        said = nvrtc.report(source.text, "product", source.headers())
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", said), f"{cut}: {said}"
        assert "serialized" not in said, "products wait for one another"
