"""Skinny products, and what is fused into them, against torch."""

import pytest
import torch

from services.common.kernels.linear import kernel, reference
from services.common.kernels.linear.ends import end_rows
from services.common.kernels.linear.tiling import Tiling
from services.common.kernels.normed import Normed
from tests.kernels.gpu.devices import DTYPES, close, randn

EPS = 1e-6
CUTS = (Tiling(32, 16), Tiling(64, 16))
SIZES = [(1, 40, 48), (16, 96, 300), (17, 32, 48), (50, 96, 304)]


def weights(outputs: int, depth: int, dtype: torch.dtype) -> torch.Tensor:
    return randn(outputs, depth, seed=1, dtype=dtype).mul_(depth**-0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "outputs", "depth"), [(1, 40, 48), (16, 96, 300), (17, 40, 48)])
def test_linear(rows: int, outputs: int, depth: int, dtype: torch.dtype) -> None:
    x, weight = randn(rows, depth, dtype=dtype), weights(outputs, depth, dtype)
    close(kernel.linear(x, weight), reference.linear(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "outputs", "depth", "cut"),
    [(*size, cut) for size in SIZES for cut in CUTS],
)
def test_a_stream_through_both_halves_of_a_norm(
    rows: int, outputs: int, depth: int, cut: Tiling, dtype: torch.dtype
) -> None:
    x, stream, norm = randn(rows, depth, dtype=dtype), randn(rows, outputs, seed=2, dtype=dtype), randn(outputs, seed=3)
    weight, norm = weights(outputs, depth, dtype), norm.to(dtype)
    normed, total = kernel.linear_added(x, weight, stream, norm, EPS, cut=cut)
    expected, sum_ = reference.linear_added(x, weight, stream, norm, EPS)
    close(total, sum_)
    assert normed.squares_T is not None
    close(normed.squares_T * 2.0**-24, total.float().pow(2).sum(1))
    following = weights(64, outputs, dtype)
    close(kernel.linear_gated(normed, following, EPS, cut), reference.linear_gated(expected, following, EPS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "cut"), [(16, CUTS[0]), (16, CUTS[1]), (200, None)])
def test_a_norm_adds_its_offset_before_it_multiplies(rows: int, cut: Tiling | None, dtype: torch.dtype) -> None:
    x, stream, norm = randn(rows, 300, dtype=dtype), randn(rows, 96, seed=2, dtype=dtype), 0.2 * randn(96, seed=3)
    weight, following, norm = weights(96, 300, dtype), weights(64, 96, dtype), norm.to(dtype)
    expected, _ = reference.linear_added(x, weight, stream, norm, EPS, 1.0)
    normed, _ = kernel.linear_added(x, weight, stream, norm, EPS, offset=1.0, cut=cut)
    close(kernel.linear_gated(normed, following, EPS, cut), reference.linear_gated(expected, following, EPS))


def test_what_has_no_cut_goes_through_kernels_of_its_own() -> None:
    x, stream, norm = randn(200, 48), randn(200, 40, seed=2), randn(40, seed=3)
    weight, following = weights(40, 48, torch.float32), weights(64, 40, torch.float32)
    before = stream.clone()
    expected, sum_ = reference.linear_added(x, weight, stream, norm, EPS)
    few, _ = kernel.linear_added(x[:5], weight, stream[:5], norm, EPS)
    normed, total = kernel.linear_added(x, weight, stream, norm, EPS, keep=True)
    assert torch.equal(stream, before)
    in_place, again = kernel.linear_added(x, weight, stream, norm, EPS)
    assert again is stream
    assert torch.equal(again, total)
    assert torch.equal(in_place.rows_TD, normed.rows_TD)
    close(total, sum_)
    close(kernel.linear_gated(normed, following, EPS), reference.linear_gated(expected, following, EPS))
    assert few.squares_T is not None
    many = Normed(few.rows_TD.repeat(40, 1), few.squares_T.repeat(40))
    close(kernel.linear_gated(many, following, EPS), reference.linear_gated(many, following, EPS))


def begun(rows: int, width: int, dtype: torch.dtype) -> Normed:
    """Rows whose division waits for their product."""
    x = randn(rows, width, dtype=dtype)
    return Normed(x, (x.double().pow(2) * 2**24).sum(1).long())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "cut"), [(1, CUTS[0]), (17, CUTS[1]), (200, None)])
def test_a_norm_is_divided_behind_its_product_and_gates_rows(rows: int, cut: Tiling | None, dtype: torch.dtype) -> None:
    normed, mixed, weight = begun(rows, 96, dtype), randn(rows, 104, seed=2, dtype=dtype), weights(104, 96, dtype)
    expected = reference.linear_gates(normed, weight, mixed.clone(), EPS)
    close(kernel.linear_normed(normed, weight, EPS, cut), reference.linear_normed(normed, weight, EPS))
    gated = kernel.linear_gates(normed, weight, mixed, EPS, cut)
    assert gated is mixed
    close(gated, expected)


@pytest.mark.parametrize("divided", [False, True])
def test_an_end_of_its_own_has_the_bits_of_the_products(divided: bool) -> None:
    normed, mixed, weight = (
        begun(17, 96, torch.bfloat16),
        randn(17, 104, seed=2).bfloat16(),
        weights(104, 96, torch.bfloat16),
    )
    normed = Normed(normed.rows_TD) if divided else normed
    product = kernel.linear(normed.rows_TD, weight, cut=CUTS[0])
    gated = end_rows(product, normed, mixed.clone(), EPS)
    assert torch.equal(gated, kernel.linear_gates(normed, weight, mixed, EPS, CUTS[0]))
    assert torch.equal(end_rows(product, normed, None, EPS), kernel.linear_normed(normed, weight, EPS, CUTS[0]))


@pytest.mark.parametrize("cut", CUTS)
def test_the_same_bits_each_time(cut: Tiling) -> None:
    x, weight = randn(16, 96), weights(64, 96, torch.float32)
    first = kernel.linear(x, weight, cut=cut)
    assert all(torch.equal(kernel.linear(x, weight, cut=cut), first) for _ in range(3))
