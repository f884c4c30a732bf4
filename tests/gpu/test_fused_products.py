"""Own products of some hundred rows against those of the library and the kernels behind them: the same bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import kernel
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.fused import fused_tiling
from services.common.kernels.linear.normed import Normed
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
EPS = 1e-6
SHAPES = [(2560, 4096, 128), (2560, 4096, 113), (2560, 9728, 128), (2560, 9728, 120)]


@pytest.fixture(autouse=True)
def ordered() -> None:
    keep_order()


def operands(rows: int, lines: int, depth: int) -> tuple[Tensor, Tensor]:
    x_TD = randn(rows, depth, dtype=torch.bfloat16)
    return x_TD, randn(lines, depth, seed=1, dtype=torch.bfloat16).mul_(0.02)


def fused(x_TD: Tensor, weight_FD: Tensor) -> None:
    assert fused_tiling(x_TD, weight_FD) is not None, "this GPU takes the library's products"


def by_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "fused_tiling", lambda *_: None)


@pytest.mark.parametrize(("lines", "depth", "rows"), SHAPES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_product_added_to_a_stream(
    lines: int, depth: int, rows: int, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_TD, weight_FD = operands(rows, lines, depth)
    stream_TF, norm_F = randn(rows, lines, seed=2, dtype=torch.bfloat16), randn(lines, seed=3, dtype=torch.bfloat16)
    fused(x_TD, weight_FD)
    normed, total_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS, offset=offset)
    by_library(monkeypatch)
    expected, sum_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS, offset=offset)
    assert torch.equal(total_TF, sum_TF)
    assert torch.equal(normed.rows_TD, expected.rows_TD)
    assert normed.squares_T is not None and expected.squares_T is not None
    assert torch.equal(normed.squares_T, expected.squares_T)


@pytest.mark.parametrize("rows", [113, 128, 230, 256])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_a_product_that_gates(rows: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x_TD, weight_FD = operands(rows, 19456, 2560)
    squares_T = (randn(rows, seed=4).abs() * 2560 * 2**24).long() + 1
    fused(x_TD, weight_FD)
    both = [Normed(x_TD * scale, squares_T), Normed(x_TD * scale)]
    gated = [kernel.linear_gated(normed, weight_FD, EPS) for normed in both]
    by_library(monkeypatch)
    for normed, got_TI in zip(both, gated, strict=True):
        assert torch.equal(got_TI, kernel.linear_gated(normed, weight_FD, EPS))


def test_a_row_takes_nothing_from_another_that_is_no_number() -> None:
    x_TD, weight_FD = operands(128, 2560, 9728)
    stream_TF, norm_F = randn(128, 2560, seed=2, dtype=torch.bfloat16), randn(2560, seed=3, dtype=torch.bfloat16)
    _, total_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS)
    x_TD[::2] = torch.nan
    _, beside_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS)
    assert torch.equal(beside_TF[1::2], total_TF[1::2])


def test_a_gated_row_takes_nothing_from_another_that_is_no_number() -> None:
    x_TD, weight_FD = operands(256, 19456, 2560)
    gated_TI = kernel.linear_gated(Normed(x_TD), weight_FD, EPS)
    spoilt_TD = x_TD.clone()
    spoilt_TD[::2] = torch.nan
    assert torch.equal(kernel.linear_gated(Normed(spoilt_TD), weight_FD, EPS)[1::2], gated_TI[1::2])
