"""Products by weights of eight bits have the bits of those by the same numbers in the rows' type."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.argmax_token import kernel as argmax
from services.common.kernels.linear import int8_kernel, kernel
from services.common.kernels.linear.int8_tiling import Int8Cut
from services.common.kernels.linear.int8_weight import HALF, Int8Weight, quantised
from services.common.kernels.linear.tiling import Tiling
from tests.kernels.gpu.devices import DTYPES, INTERPRETED, randn

EPS = 1e-6
CUTS = (Int8Cut(16, 64), Int8Cut(16, 16, 2, x_left=True), Int8Cut(32, 32, 2, 4, x_left=True))
SIZES = [(1, 48, 40), (16, 96, 300), (35, 72, 256)]
"""Rows, outputs and depth; some fill no band and no group."""


def weight_of(outputs: int, depth: int, dtype: torch.dtype) -> Int8Weight:
    return quantised(randn(outputs, depth, seed=1, dtype=dtype).mul_(depth**-0.5))


def wide_cut(cut: Int8Cut) -> Tiling:
    """The interpreter adds a tile of the depth as a library does: there it must be as large."""
    return Tiling(cut.band, HALF, x_left=cut.x_left)


def in_tiles(x: Tensor, rows: int) -> list[Tensor]:
    """As many rows as a program takes, and as the interpreter must multiply at once."""
    return list(x.split(rows))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("cut", "rows", "outputs", "depth"), [(cut, *size) for cut, size in zip(CUTS, SIZES, strict=True)]
)
def test_a_product_is_that_of_the_wide_numbers(
    cut: Int8Cut, rows: int, outputs: int, depth: int, dtype: torch.dtype
) -> None:
    x, weight = randn(rows, depth, dtype=dtype), weight_of(outputs, depth, dtype)
    got = int8_kernel.linear(x, weight, cut=cut)
    wide = weight.widened()
    assert torch.equal(got, torch.cat([kernel.linear(some, wide, cut=wide_cut(cut)) for some in in_tiles(x, cut.rows)]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cut", CUTS[:2])
def test_what_follows_a_product_follows_this_one(cut: Int8Cut, dtype: torch.dtype) -> None:
    x, stream, norm = (randn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(((9, 200), (9, 96), (96,))))
    weight, following = weight_of(96, 200, dtype), weight_of(64, 96, dtype)
    got, total = int8_kernel.linear_added(x, weight, stream, norm, EPS, offset=1.0, cut=cut)
    like, sum_ = kernel.linear_added(x, weight.widened(), stream, norm, EPS, offset=1.0, cut=wide_cut(cut))
    assert torch.equal(total, sum_)
    assert torch.equal(got.rows_TD, like.rows_TD)
    assert got.squares_T is not None and like.squares_T is not None
    assert torch.equal(got.squares_T, like.squares_T)
    gated = int8_kernel.linear_gated(got, following, EPS, cut)
    assert torch.equal(gated, kernel.linear_gated(like, following.widened(), EPS, wide_cut(cut)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_its_bits_in_any_company(dtype: torch.dtype) -> None:
    """At every number of rows with the cut of that number; neighbours that are not numbers change nothing."""
    x, weight = randn(40, 256, dtype=dtype), weight_of(64, 256, dtype)
    alone = int8_kernel.linear(x[7:8], weight)
    for rows in (8, 16, 17, 40):
        got = int8_kernel.linear(x[:rows], weight)[7:8]
        assert torch.equal(got, alone) or INTERPRETED
        spoilt = x[:rows].clone()
        spoilt[:7], spoilt[8:] = torch.nan, torch.nan
        assert torch.equal(int8_kernel.linear(spoilt, weight)[7:8], got)


def test_rows_of_eight_bytes_take_the_wide_numbers() -> None:
    x, weight = randn(3, 40, dtype=torch.float64), weight_of(48, 40, torch.float64)
    assert torch.equal(int8_kernel.linear(x, weight), kernel.linear(x, weight.widened()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_of_a_part_of_a_head(dtype: torch.dtype) -> None:
    rows, head = randn(5, 40, dtype=dtype), weight_of(90, 40, dtype)
    scores = int8_kernel.linear(rows, head)
    assert torch.equal(argmax.argmax_of_product(rows, head), scores.argmax(-1))
    assert torch.equal(argmax.argmax_of_product(rows, head.lines(16, 70)), scores[:, 16:70].argmax(-1))
