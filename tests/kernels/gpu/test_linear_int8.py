"""Products of whole numbers have the reference's bits, whatever their cut and company."""

import pytest
import torch

from services.common.kernels.argmax_token import kernel as argmax
from services.common.kernels.linear import Normed, int8_kernel, reference
from services.common.kernels.linear.int8_rows import quantised_rows
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from services.common.kernels.linear.int8_weight import quantised_rows as rows_in_torch
from services.common.kernels.linear.tiling import Int8Cut
from tests.kernels.gpu.devices import DTYPES, randn

EPS = 1e-6
CUTS = (Int8Cut(16, 64, 128), Int8Cut(16, 16, 64, 2), Int8Cut(32, 32, 32, 2), Int8Cut(64, 64, 64))
SIZES = [(1, 48, 40), (16, 96, 304), (35, 72, 256), (70, 192, 272)]
"""Rows, outputs and depth; some fill no band and no tile."""


def weight_of(outputs: int, depth: int, dtype: torch.dtype) -> Int8Weight:
    return quantised(randn(outputs, depth, seed=1, dtype=dtype).mul_(depth**-0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_rounded_as_in_torch(dtype: torch.dtype) -> None:
    x = randn(5, 300, dtype=dtype)
    x[1], x[2, :3] = 0.0, torch.tensor([127.0, 0.5, 1.5], dtype=dtype)
    for got, expected in zip(quantised_rows(x), rows_in_torch(x), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("cut", "rows", "outputs", "depth"), [(cut, *size) for cut, size in zip(CUTS, SIZES, strict=True)]
)
def test_a_product_is_the_references(cut: Int8Cut, rows: int, outputs: int, depth: int, dtype: torch.dtype) -> None:
    x, weight = randn(rows, depth, dtype=dtype), weight_of(outputs, depth, dtype)
    assert torch.equal(int8_kernel.linear(x, weight, cut=cut), reference.linear(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cut", [*CUTS[:2], CUTS[3]])
def test_what_follows_a_product_is_the_same_by_any_cut(cut: Int8Cut, dtype: torch.dtype) -> None:
    x, stream, norm = (randn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(((9, 208), (9, 96), (96,))))
    weight, following = weight_of(96, 208, dtype), weight_of(64, 96, dtype)
    got, total = int8_kernel.linear_added(x, weight, stream, norm, EPS, offset=1.0, cut=cut)
    like, sum_ = int8_kernel.linear_added(x, weight, stream, norm, EPS, offset=1.0, cut=CUTS[0])
    assert torch.equal(total, (reference.linear(x, weight) + stream).to(dtype)) and torch.equal(total, sum_)
    assert torch.equal(got.rows_TD, like.rows_TD)
    assert got.squares_T is not None and like.squares_T is not None
    assert torch.equal(got.squares_T, like.squares_T)
    gated = int8_kernel.linear_gated(got, following, EPS, cut)
    assert torch.equal(gated, int8_kernel.linear_gated(like, following, EPS, CUTS[0]))
    torch.testing.assert_close(gated, reference.linear_gated(got, following, EPS), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_its_bits_in_any_company(dtype: torch.dtype) -> None:
    """At every number of rows with the cut of that number; neighbours that are not numbers change nothing."""
    x, weight = randn(40, 256, dtype=dtype), weight_of(64, 256, dtype)
    alone = int8_kernel.linear(x[7:8], weight)
    for rows in (8, 16, 17, 40):
        assert torch.equal(int8_kernel.linear(x[:rows], weight)[7:8], alone)
        spoilt = x[:rows].clone()
        spoilt[:7], spoilt[8:] = torch.nan, torch.nan
        assert torch.equal(int8_kernel.linear(spoilt, weight)[7:8], alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_waits_for_the_product(dtype: torch.dtype) -> None:
    x, weight = randn(5, 64, dtype=dtype), weight_of(96, 64, dtype)
    squares = (x.double().square().sum(1) * 2**24).long()
    normed = Normed(x, squares)
    torch.testing.assert_close(
        int8_kernel.linear_gated(normed, weight, EPS), reference.linear_gated(normed, weight, EPS), atol=1e-2, rtol=1e-2
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_of_a_part_of_a_head(dtype: torch.dtype) -> None:
    rows, head = randn(5, 48, dtype=dtype), weight_of(90, 48, dtype)
    scores = int8_kernel.linear(rows, head)
    assert torch.equal(argmax.argmax_of_product(rows, head), scores.argmax(-1))
    assert torch.equal(argmax.argmax_of_product(rows, head.lines(16, 70)), scores[:, 16:70].argmax(-1))
