"""Heads to codes and back in torch, for TorchScript."""

import torch
from torch import Tensor


def coded(heads_THD: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole numbers [T, H, D] of -127 to 127 and exponents [T, H], both int8.

    A number is its code times two to the power of the exponent, which is the least one, from -126 on, that keeps all
    codes of the head below 128. Halves go to the even code. A head with NaN, infinity, or a number that would have an
    exponent above 121 is NaN, as exponent 127 says.
    """
    wide_THD = heads_THD if heads_THD.dtype == torch.float64 else heads_THD.float()
    top_TH = wide_THD.abs().amax(-1)
    share_TH, power_TH = torch.frexp(top_TH)
    least_TH = torch.where(top_TH > 0, power_TH - 7 + (share_TH * 128 > 127).int(), -126).clamp(min=-126)
    lost_TH = ~top_TH.isfinite() | (least_TH > 121)
    exponents_TH = torch.where(lost_TH, 127, least_TH)
    whole_THD = torch.round(wide_THD * powers(-exponents_TH, wide_THD.dtype)[:, :, None])
    codes_THD = torch.where(lost_TH[:, :, None], 127, whole_THD)
    return codes_THD.to(torch.int8), exponents_TH.to(torch.int8)


def widened(codes: Tensor, exponents: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers [.., D] of codes [.., D] and exponents [..] in a type of floats, all of which hold them."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    factors = torch.where(exponents == 127, float("nan"), powers(exponents, wide))
    return (codes.to(wide) * factors.unsqueeze(-1)).to(dtype)


def powers(exponents: Tensor, dtype: torch.dtype) -> Tensor:
    """Return two to the power of integers of -127 to 127, as float32 or float64; `powers_are_exact` says whether so."""
    return torch.exp2(exponents.to(dtype))


def powers_are_exact() -> bool:
    """Whether this machine's library gives powers of two themselves, of which a bit of another would lose the bits."""
    exponents = torch.arange(-126, 128)
    bits = ((exponents.int() + 127) << 23).view(torch.float32), ((exponents + 1023) << 52).view(torch.float64)
    return all(torch.equal(powers(exponents, own.dtype), own) for own in bits)


def store_codes(codes_PHD: Tensor, exponents_PH: Tensor, slots_T: Tensor, heads_THD: Tensor) -> None:
    """Code heads into flat slots."""
    codes_THD, own_TH = coded(heads_THD)
    codes_PHD.index_copy_(0, slots_T, codes_THD)
    exponents_PH.index_copy_(0, slots_T, own_TH)
