"""Products of few rows in CUDA C++ against the programs in Triton: the same bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import kernel
from services.common.kernels.linear.normed import Normed
from services.common.kernels.linear.skinny import Kind, skinny_tiling
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
EPS = 1e-6
ROWS = [1, 2, 7, 8, 9, 16, 17, 32]
PLAIN = [(6144, 2560), (12352, 2560), (132, 64)]
GATED = [(19456, 2560), (18432, 2560), (34816, 5120), (32, 64)]
GATES = [(4096, 2560), (6144, 5120), (132, 64)]
ADDED = [(2560, 4096), (2560, 9728), (5120, 17408), (132, 192)]


def operands(rows: int, lines: int, depth: int) -> tuple[Tensor, Tensor]:
    x_TD = randn(rows, depth, dtype=torch.bfloat16)
    return x_TD, randn(lines, depth, seed=1, dtype=torch.bfloat16).mul_(0.02)


def squares(rows: int, depth: int) -> Tensor:
    return (randn(rows, seed=4).abs() * depth * 2**24).long() + 1


def by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "skinny_tiling", lambda *_: None)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("lines", "depth"), PLAIN)
def test_a_product_and_one_of_a_norm(lines: int, depth: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x_TD, weight_FD = operands(rows, lines, depth)
    normed = Normed(x_TD, squares(rows, depth))
    assert skinny_tiling(x_TD, weight_FD, Kind.PLAIN) is not None, "this GPU takes Triton's products"
    got = kernel.linear(x_TD, weight_FD), kernel.linear_normed(normed, weight_FD, EPS)
    by_triton(monkeypatch)
    assert torch.equal(got[0], kernel.linear(x_TD, weight_FD))
    assert torch.equal(got[1], kernel.linear_normed(normed, weight_FD, EPS))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("lines", "depth"), GATED)
@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_a_product_that_gates(lines: int, depth: int, rows: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x_TD, weight_FD = operands(rows, lines, depth)
    both = [Normed(x_TD * scale, squares(rows, depth)), Normed(x_TD * scale)]
    got = [kernel.linear_gated(normed, weight_FD, EPS) for normed in both]
    by_triton(monkeypatch)
    for normed, got_TI in zip(both, got, strict=True):
        assert torch.equal(got_TI, kernel.linear_gated(normed, weight_FD, EPS))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("lines", "depth"), ADDED)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_product_added_to_a_stream(
    lines: int, depth: int, rows: int, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_TD, weight_FD = operands(rows, lines, depth)
    stream_TF, norm_F = randn(rows, lines, seed=2, dtype=torch.bfloat16), randn(lines, seed=3, dtype=torch.bfloat16)
    normed, total_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS, offset=offset)
    by_triton(monkeypatch)
    expected, sum_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS, offset=offset)
    assert torch.equal(total_TF, sum_TF)
    assert torch.equal(normed.rows_TD, expected.rows_TD)
    assert normed.squares_T is not None and expected.squares_T is not None
    assert torch.equal(normed.squares_T, expected.squares_T)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("lines", "depth"), GATES)
@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_a_product_that_gates_rows(
    lines: int, depth: int, rows: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_TD, weight_FD = operands(rows, lines, depth)
    mixed_TF = randn(rows, lines, seed=5, dtype=torch.bfloat16)
    both = [Normed(x_TD * scale, squares(rows, depth)), Normed(x_TD * scale)]
    assert skinny_tiling(x_TD, weight_FD, Kind.GATES) is not None, "this GPU takes Triton's products"
    got = [kernel.linear_gates(normed, weight_FD, mixed_TF.clone(), EPS) for normed in both]
    by_triton(monkeypatch)
    for normed, got_TF in zip(both, got, strict=True):
        assert torch.equal(got_TF, kernel.linear_gates(normed, weight_FD, mixed_TF.clone(), EPS))


def test_a_row_takes_nothing_from_another_that_is_no_number() -> None:
    x_TD, weight_FD = operands(16, 6144, 2560)
    whole_TF = kernel.linear(x_TD, weight_FD)
    spoilt_TD = x_TD.clone()
    spoilt_TD[::2] = torch.nan
    assert torch.equal(kernel.linear(spoilt_TD, weight_FD)[1::2], whole_TF[1::2])


def test_a_row_is_the_same_alone() -> None:
    x_TD, weight_FD = operands(32, 19456, 2560)
    together_TI = kernel.linear_gated(Normed(x_TD), weight_FD, EPS)
    for row in (0, 15, 31):
        alone_TI = kernel.linear_gated(Normed(x_TD[row : row + 1]), weight_FD, EPS)
        assert torch.equal(alone_TI[0], together_TI[row])
