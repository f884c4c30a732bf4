"""Weights and rows of eight bits: none is further off than half a step, and whole numbers add up exactly."""

import pytest
import torch

from services.common.kernels.linear.int8_weight import MOST, Int8Weight, product_of_packed, quantised, quantised_rows
from services.common.kernels.linear.integers import _DEEPEST, adds_exactly, multiplies_packed, product_of_whole
from services.common.kernels.linear.product import product
from services.common.kernels.linear.reference import linear
from services.common.kernels.linear.weight import lines

RANDOM = torch.Generator().manual_seed(8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_number_is_off_by_half_a_step_at_most(dtype: torch.dtype) -> None:
    weight_FD = (torch.randn(33, 300, generator=RANDOM) * torch.logspace(-6, 3, 33)[:, None]).to(dtype)
    weight_FD[5] = 0.0
    found = quantised(weight_FD)
    assert (found.shape, found.dtype, found.whole_FD.dtype) == ((33, 300), dtype, torch.int8)
    step_F1 = found.scale_F[:, None].double()
    off_FD = (found.whole_FD.double() * step_F1 - weight_FD.double()).abs()
    assert (off_FD <= step_F1 * 0.5001).all()
    assert found.whole_FD.abs().amax(1).tolist() == [0 if line == 5 else MOST for line in range(33)]
    assert found.scale_F[5] == 0.0


def test_numbers_halfway_go_to_the_even_one() -> None:
    whole_TD, scale_T = quantised_rows(torch.tensor([[127.0, 0.5, 1.5, -2.5, -3.5], [0.0, 0.0, 0.0, 0.0, 0.0]]))
    assert whole_TD.tolist() == [[127, 0, 2, -2, -4], [0, 0, 0, 0, 0]]
    assert scale_T.tolist() == [1.0, 0.0]


def test_a_product_is_the_exact_sum_of_whole_numbers_scaled_once() -> None:
    x_TD, weight = torch.randn(5, 9728, generator=RANDOM), quantised(torch.randn(7, 9728, generator=RANDOM))
    whole_TD, scale_T = quantised_rows(x_TD)
    sums_TF = whole_TD.long() @ weight.whole_FD.long().t()
    expected_TF = sums_TF.float() * (weight.scale_F * scale_T[:, None])
    assert torch.equal(linear(x_TD, weight), expected_TF)
    assert torch.equal(product(weight)(x_TD), expected_TF)
    assert torch.equal(linear(x_TD, weight, out := torch.empty(5, 7)), out)


def test_a_row_is_the_same_in_any_company() -> None:
    x_TD, weight = torch.randn(9, 64, generator=RANDOM), quantised(torch.randn(16, 64, generator=RANDOM))
    alone = linear(x_TD[3:4], weight)
    x_TD[:3], x_TD[4:] = torch.nan, 1e30
    assert torch.equal(linear(x_TD, weight)[3:4], alone)


def test_lines_of_a_weight_share_its_memory() -> None:
    weight_FD = torch.randn(40, 40, generator=RANDOM)
    whole = quantised(weight_FD)
    some = lines(whole, 16, 37)
    assert isinstance(some, Int8Weight)
    assert some.whole_FD.data_ptr() == whole.whole_FD[16:].data_ptr()
    assert torch.equal(some.widened(), whole.widened()[16:37])
    same = lines(weight_FD, 3, 7)
    assert isinstance(same, torch.Tensor) and torch.equal(same, weight_FD[3:7])


@pytest.mark.skipif(not adds_exactly("cpu"), reason="this processor has no quick product of eight-bit integers")
@pytest.mark.parametrize("depth", [1, 31, 576, 1025, 9728])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33, 70])
def test_both_ways_to_the_sums_give_the_same_bits(rows: int, depth: int) -> None:
    x_TD, weight = torch.randn(rows, depth, generator=RANDOM), quantised(torch.randn(50, depth, generator=RANDOM))
    weight.whole_FD[0] = -MOST
    x_TD[0] = 3.0
    parts = x_TD, weight.whole_FD, weight.scale_F
    assert torch.equal(product_of_whole(*parts, in_integers=True), product_of_whole(*parts, in_integers=False))


@pytest.mark.skipif(not multiplies_packed("cpu", 576), reason="this processor has no quick product of packed integers")
@pytest.mark.parametrize("depth", [1, 31, 576, 1025, 9728])
@pytest.mark.parametrize("rows", [1, 4, 17, 70])
def test_packed_integers_give_the_same_bits(rows: int, depth: int) -> None:
    x_TD, weight = torch.randn(rows, depth, generator=RANDOM), quantised(torch.randn(50, depth, generator=RANDOM))
    weight.whole_FD[0], weight.whole_FD[1] = -MOST, MOST
    x_TD[0] = 3.0  # the largest sums that there are
    expected_TF = product_of_whole(x_TD, weight.whole_FD, weight.scale_F, in_integers=False)
    assert torch.equal(product_of_packed(x_TD, weight.packed, weight.scale_F), expected_TF)
    assert torch.equal(product(weight)(x_TD), expected_TF)


def test_sums_that_32_bits_might_not_hold_are_not_packed() -> None:
    assert (MOST + 128) * MOST * _DEEPEST < 2**31 <= (MOST + 128) * MOST * (_DEEPEST + 1)
    assert not multiplies_packed("cpu", _DEEPEST + 1)
