"""Weights of the CPU path: stored in two bytes only where that changes nothing that float32 can show."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear.product import HalfProduct, WideProduct, product


def weight_of(dtype: torch.dtype) -> Tensor:
    return torch.randn(96, 64, generator=torch.Generator().manual_seed(4)).mul_(0.05).to(dtype).float()


@pytest.mark.parametrize("rows", [1, 3, 8, 33])
def test_two_bytes_give_what_float32_gives(rows: int) -> None:
    weight_FD = weight_of(torch.bfloat16)
    x_TD = torch.randn(rows, 64, generator=torch.Generator().manual_seed(5))
    exact_TF = x_TD.double() @ weight_FD.double().t()
    half = product(weight_FD)
    assert isinstance(half, HalfProduct)
    error = float((half(x_TD) - exact_TF).abs().max())
    assert error <= 2 * float((WideProduct(weight_FD)(x_TD) - exact_TF).abs().max())


@pytest.mark.parametrize("spoilt", [1 + 2.0**-12, 7e4, float("inf")], ids=["finer", "larger", "infinite"])
def test_a_weight_that_float16_cannot_hold_stays_as_it_is(spoilt: float) -> None:
    weight_FD = weight_of(torch.bfloat16)
    weight_FD[5, 7] = spoilt
    assert isinstance(product(weight_FD), WideProduct)


def test_the_smallest_weights_may_lose_their_last_bits_only() -> None:
    weight_FD = weight_of(torch.bfloat16)
    weight_FD[0, :2] = torch.tensor([1e-6, 3e-9])
    assert isinstance(product(weight_FD), HalfProduct)
    unit_TD = torch.zeros(2, 64).fill_diagonal_(1.0)
    got_T = product(weight_FD)(unit_TD)[:, 0]
    assert float((got_T - weight_FD[0, :2]).abs().max()) <= 2.0**-25


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_multiplied_as_they_are(dtype: torch.dtype) -> None:
    weight_FD = weight_of(torch.bfloat16).to(dtype)
    x_TD = torch.ones(4, 64, dtype=dtype)
    torch.testing.assert_close(product(weight_FD)(x_TD), x_TD @ weight_FD.t())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_bias_is_added(dtype: torch.dtype) -> None:
    weight_FD, x_TD = weight_of(torch.bfloat16).to(dtype), torch.ones(4, 64, dtype=dtype)
    bias_F = torch.arange(96, dtype=dtype)
    got_TF = product(weight_FD, bias_F)(x_TD)
    assert torch.equal(got_TF, product(weight_FD)(x_TD) + bias_F)
