"""Products by integers of eight bits in torch, and whether this machine's are exact."""

from functools import cache

import torch
from torch import Tensor

from services.common.kernels.linear.int8_weight import MIDDLE, MOST, packed_whole, product_of_packed, quantised_rows

_PROBED = (1, 64, 32), (7, 576, 96), (33, 1000, 48)
"""Rows, depths and widths of products whose sums are compared."""
_PACKED_PROBED = (1, 64), (5, 96), (16, 33)
"""Rows and widths of those by packed weights."""
_DEEPEST = (1 << 31) // ((MOST + MIDDLE) * MOST)
"""FBGEMM's sums of such rows have 32 bits."""


def product_of_whole(x_TD: Tensor, whole_FD: Tensor, scale_F: Tensor, in_integers: bool) -> Tensor:
    """Return rows, rounded to eight bits, times integers, scaled once in float32.

    Sums are exact, so both ways to them give the same bits: `in_integers` where the machine `adds_exactly`, or float64.
    """
    whole_TD, scale_T = quantised_rows(x_TD)
    if in_integers and whole_FD.shape[1] > 1:  # torch reads a depth of one by a wrong stride
        sums_TF = torch._int_mm(whole_TD, whole_FD.t()).float()
    else:
        sums_TF = (whole_TD.double() @ whole_FD.double().t()).float()
    return (sums_TF * (scale_F * scale_T[:, None])).to(x_TD.dtype)


@cache
def adds_exactly(device: str) -> bool:
    """Return whether the vendor's product of eight-bit integers is quick and exact here.

    Processors without VNNI add pairs of products in sixteen bits, which the largest numbers overflow, or run a plain
    loop.
    """
    if device != "cpu" or not torch.cpu._is_vnni_supported():
        return False
    generator = torch.Generator().manual_seed(1)
    for rows, depth, width in _PROBED:
        some_RD = torch.randint(-MOST, MOST + 1, (rows, depth), dtype=torch.int8, generator=generator)
        some_FD = torch.full((width, depth), MOST, dtype=torch.int8)
        some_RD[0] = -MOST
        if not torch.equal(torch._int_mm(some_RD, some_FD.t()).double(), some_RD.double() @ some_FD.double().t()):
            return False
    return True


@cache
def multiplies_packed(device: str, depth: int) -> bool:
    """Return whether FBGEMM is here and its products of whole numbers, so deep, are exact."""
    if depth > _DEEPEST or not adds_exactly(device):
        return False
    generator = torch.Generator().manual_seed(2)
    for rows, width in _PACKED_PROBED:
        some_RD = torch.randint(-MOST, MOST + 1, (rows, depth), dtype=torch.int8, generator=generator)
        some_FD = torch.randint(-MOST, MOST + 1, (width, depth), dtype=torch.int8, generator=generator)
        some_RD[0], some_FD[0], some_FD[-1] = MOST, MOST, -MOST
        ones_F = torch.ones(width)
        try:
            found_RF = product_of_packed(some_RD.float(), packed_whole(some_FD), ones_F)
        except (AttributeError, NotImplementedError, RuntimeError):
            return False
        if not torch.equal(found_RF, product_of_whole(some_RD.float(), some_FD, ones_F, in_integers=False)):
            return False
    return True
