"""Packed weights give the bits of the widened weight, whatever multiplies by them; on a GPU beside NaN."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import Normed, linear, linear_added, linear_gated
from services.common.kernels.linear.packed_weight import Codes, PackedWeight, packed, rounded_to_eight, rounded_to_four
from services.common.kernels.linear.packed_widen import widened
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED, randn

EPS, DTYPE = 1e-6, DTYPES[-1]
ROWS = (5,) if INTERPRETED else (1, 2, 8, 16, 17, 32, 33, 64, 65, 128, 256, 257)
KINDS = ("blocks", "four", "lines", "tensor", "floats", "four-even", "four-f16")
"""E4M3 with scales of blocks, of lines for all inputs, of all, of lines and inputs in float32; and of four bits, even
ones with zero points of 8."""


def weight_of(kind: str, lines: int = 256, depth: int = 256) -> PackedWeight:
    numbers_FD = randn(lines, depth, seed=2).mul_(depth**-0.5)
    if kind == "blocks":
        found = rounded_to_eight(numbers_FD.to(DTYPE))
    elif kind in {"four", "four-even"}:
        found = rounded_to_four(numbers_FD.to(DTYPE), symmetric=kind == "four-even")
    elif kind == "four-f16":
        codes_FD, zero_FG = (
            (numbers_FD * 40 + 7).clamp(0, 15).to(torch.uint8),
            torch.full((lines, 1), 7, dtype=torch.uint8),
        )
        scale_FG = (randn(lines, depth // 128, seed=3).abs() + 0.1).mul_(0.01).half().float()
        found = packed(Codes(codes_FD, scale_FG, zero_FG.expand(scale_FG.shape).to(DEVICE)), DTYPE)
    else:
        groups = depth // 128 if kind == "floats" else 1
        scale_FG = (randn(lines, groups, seed=3).abs() + 0.1) * 1e-3
        scale_FG = scale_FG[:1].expand(lines, -1) if kind == "tensor" else scale_FG
        scale_FG = scale_FG if kind == "floats" else scale_FG.bfloat16().float()
        codes_FD = (numbers_FD / scale_FG.repeat_interleave(depth // groups, 1)).clamp(-448, 448)
        found = packed(Codes(codes_FD.to(torch.float8_e4m3fn), scale_FG), DTYPE)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_widened_to_the_numbers_that_it_means(kind: str) -> None:
    weight = weight_of(kind)
    for dtype in {DTYPE, torch.bfloat16}:
        typed = replace(weight, dtype=dtype)
        assert torch.equal(widened(typed), typed.widened())


def everything(x_TD: Tensor, stream_TF: Tensor, weight: PackedWeight | Tensor) -> list[Tensor]:
    """What products leave that nothing, SwiGLU, and the sum with a stream follow."""
    norm_F, squares_T = randn(weight.shape[0], seed=5, dtype=DTYPE), torch.arange(1, 1 + len(x_TD), device=DEVICE) << 30
    normed, total_TF = linear_added(x_TD, weight, stream_TF.clone(), norm_F, EPS, keep=True)
    assert normed.squares_T is not None
    gated_TI = linear_gated(Normed(x_TD, squares_T), weight, EPS)
    return [linear(x_TD, weight), gated_TI, total_TF, normed.rows_TD, normed.squares_T]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", KINDS[:2] if INTERPRETED else KINDS)
def test_products_have_the_bits_of_the_widened_weight(kind: str, beside: bool) -> None:
    weight = replace(weight_of(kind), beside=beside).to(torch.device(DEVICE))
    assert (weight.numbers_FD is not None) == beside
    wide_FD = weight.widened()
    for rows in ROWS:
        beside_TD = torch.full((rows + 70, 256), torch.nan, dtype=DTYPE, device=DEVICE)
        beside_TD[:rows] = randn(rows, 256, seed=rows, dtype=DTYPE)
        stream_TF = randn(rows, 256, seed=9, dtype=DTYPE)
        found, expected = (everything(beside_TD[:rows], stream_TF, one) for one in (weight, wide_FD))
        assert all(map(torch.equal, found, expected)), rows
