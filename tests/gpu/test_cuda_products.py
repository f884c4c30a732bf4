"""Products in CUDA C++ against the programs in Triton and the library: the same bits."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import cuda_products, kernel
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.cuda_products import Kind, cuda_tiling
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.normed import Normed
from tests.bench.gpu.products.wide import everything
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
EPS = 1e-6
FEW = [1, 2, 7, 8, 9, 16, 17, 32]
SOME = [33, 40, 48, 57, 64]
"""Rows of one tile, of which a part may be empty."""
RULED = [65, 96, 113, 128]
"""Rows of weights that a rule cuts into tiles."""
PLAIN = [
    *[(*weight, rows) for weight, rows in product([(6144, 2560), (12352, 2560), (132, 64)], FEW + SOME)],
    *[(*weight, rows) for weight, rows in product([(6144, 2560), (151936, 2560)], [65, 96, 100, 128])],
    *[(151936, 2560, rows) for rows in (24, *SOME)],
    *[(*weight, rows) for weight, rows in product([(6144, 4096), (7168, 5120), (132, 64)], RULED)],
    *[(151936, 4096, rows) for rows in (*RULED, 200, 512)],
]
GATED = [
    *[(*weight, rows) for weight, rows in product([(19456, 2560), (18432, 2560), (34816, 5120), (32, 64)], FEW + SOME)],
    *[(*weight, rows) for weight, rows in product([(19456, 2560), (18432, 2560)], [65, 96])],
    *[(19456, 2560, rows) for rows in (113, 128, 161, 230, 256, 290, 370, 455, 512)],
    *[(*weight, rows) for weight, rows in product([(24576, 4096), (34816, 5120), (32, 64)], [*RULED, 161, 192])],
]
GATES = [(*weight, rows) for weight, rows in product([(4096, 2560), (6144, 5120), (132, 64)], FEW)]
ADDED = [
    *[
        (*weight, rows)
        for weight, rows in product([(2560, 4096), (2560, 9216), (2560, 9728), (5120, 17408), (132, 192)], FEW + SOME)
    ],
    *[(*weight, rows) for weight, rows in product([(2560, 4096), (2560, 9216), (2560, 9728)], [65, 80, 96])],
    *[(2560, 4096, 128), (2560, 4096, 113), (2560, 9728, 128), (2560, 9728, 120)],
    *[
        (*weight, rows)
        for weight, rows in product([(4096, 4096), (4096, 12288), (5120, 5120), (5120, 17408), (132, 192)], RULED)
    ],
]


@pytest.fixture(autouse=True)
def ordered() -> None:
    keep_order()


@cache
def weight_of(lines: int, depth: int) -> Tensor:
    """Random weights, made once: that takes longer than all products by them."""
    return randn(lines, depth, seed=1, dtype=torch.bfloat16).mul_(0.02)


def operands(rows: int, lines: int, depth: int, kind: Kind) -> tuple[Tensor, Tensor]:
    x_TD, weight_FD = randn(rows, depth, dtype=torch.bfloat16), weight_of(lines, depth)
    assert cuda_tiling(x_TD, weight_FD, kind) is not None, "this GPU takes other products"
    return x_TD, weight_FD


def squares(rows: int, depth: int) -> Tensor:
    return (randn(rows, seed=4).abs() * depth * 2**24).long() + 1


def by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "cuda_tiling", lambda *_: None)


@pytest.mark.parametrize(("lines", "depth", "rows"), PLAIN)
def test_a_product_and_one_of_a_norm(lines: int, depth: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x_TD, weight_FD = operands(rows, lines, depth, Kind.PLAIN)
    normed = Normed(x_TD, squares(rows, depth))
    got = kernel.linear(x_TD, weight_FD), kernel.linear_normed(normed, weight_FD, EPS)
    by_others(monkeypatch)
    assert torch.equal(got[0], kernel.linear(x_TD, weight_FD))
    assert torch.equal(got[1], kernel.linear_normed(normed, weight_FD, EPS))


@pytest.mark.parametrize(("lines", "depth", "rows"), GATED)
@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_a_product_that_gates(lines: int, depth: int, rows: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x_TD, weight_FD = operands(rows, lines, depth, Kind.GATED)
    both = [Normed(x_TD * scale, squares(rows, depth)), Normed(x_TD * scale)]
    got = [kernel.linear_gated(normed, weight_FD, EPS) for normed in both]
    by_others(monkeypatch)
    for normed, got_TI in zip(both, got, strict=True):
        assert torch.equal(got_TI, kernel.linear_gated(normed, weight_FD, EPS))


@pytest.mark.parametrize(("lines", "depth", "rows"), GATES)
@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_a_product_that_gates_rows(
    lines: int, depth: int, rows: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_TD, weight_FD = operands(rows, lines, depth, Kind.GATES)
    mixed_TF = randn(rows, lines, seed=5, dtype=torch.bfloat16)
    both = [Normed(x_TD * scale, squares(rows, depth)), Normed(x_TD * scale)]
    got = [kernel.linear_gates(normed, weight_FD, mixed_TF.clone(), EPS) for normed in both]
    by_others(monkeypatch)
    for normed, got_TF in zip(both, got, strict=True):
        assert torch.equal(got_TF, kernel.linear_gates(normed, weight_FD, mixed_TF.clone(), EPS))


@pytest.mark.parametrize(("lines", "depth", "rows"), ADDED)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_product_added_to_a_stream(
    lines: int, depth: int, rows: int, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_TD, weight_FD = operands(rows, lines, depth, Kind.ADDED)
    stream_TF, norm_F = randn(rows, lines, seed=2, dtype=torch.bfloat16), randn(lines, seed=3, dtype=torch.bfloat16)
    normed, total_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS, offset=offset)
    by_others(monkeypatch)
    expected, sum_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS, offset=offset)
    assert torch.equal(total_TF, sum_TF)
    assert torch.equal(normed.rows_TD, expected.rows_TD)
    assert normed.squares_T is not None and expected.squares_T is not None
    assert torch.equal(normed.squares_T, expected.squares_T)


@pytest.mark.parametrize("rows", [16, 48, 96, 256])
def test_a_gated_row_takes_nothing_from_another_that_is_no_number(rows: int) -> None:
    x_TD, weight_FD = operands(rows, 19456, 2560, Kind.GATED)
    gated_TI = kernel.linear_gated(Normed(x_TD), weight_FD, EPS)
    x_TD[::2] = torch.nan
    assert torch.equal(kernel.linear_gated(Normed(x_TD), weight_FD, EPS)[1::2], gated_TI[1::2])


@pytest.mark.parametrize("rows", [16, 48, 96, 128])
def test_an_added_row_takes_nothing_from_another_that_is_no_number(rows: int) -> None:
    x_TD, weight_FD = operands(rows, 2560, 9728, Kind.ADDED)
    stream_TF, norm_F = randn(rows, 2560, seed=2, dtype=torch.bfloat16), randn(2560, seed=3, dtype=torch.bfloat16)
    _, total_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS)
    x_TD[::2] = torch.nan
    _, beside_TF = kernel.linear_added(x_TD, weight_FD, stream_TF.clone(), norm_F, EPS)
    assert torch.equal(beside_TF[1::2], total_TF[1::2])


def test_a_row_is_the_same_alone() -> None:
    x_TD, weight_FD = operands(32, 19456, 2560, Kind.GATED)
    together_TI = kernel.linear_gated(Normed(x_TD), weight_FD, EPS)
    for row in (0, 15, 31):
        alone_TI = kernel.linear_gated(Normed(x_TD[row : row + 1]), weight_FD, EPS)
        assert torch.equal(alone_TI[0], together_TI[row])


LEFT = 20
"""Lines by which a product's last band is short of a whole one, or has too many."""


def in_tiles(
    tiling: PersistentTiling, normed: Normed, weight_FD: Tensor, stream_TF: Tensor, norm_F: Tensor
) -> list[Tensor]:
    """Return all that a product leaves."""
    if tiling.kind == Kind.PLAIN:
        return [cuda_products.cuda_normed(normed, weight_FD, EPS, tiling)]
    if tiling.kind == Kind.GATED:
        return [cuda_products.cuda_normed(normed, weight_FD, EPS, tiling)]
    squares_T = torch.zeros(len(stream_TF), dtype=torch.int64, device=stream_TF.device)
    begun, total_TF = cuda_products.cuda_added(normed.rows_TD, weight_FD, stream_TF, norm_F, squares_T, 1.0, tiling)
    return [begun.rows_TD, squares_T, total_TF]


def otherwise(
    tiling: PersistentTiling, normed: Normed, weight_FD: Tensor, stream_TF: Tensor, norm_F: Tensor
) -> list[Tensor]:
    """Return the same of the library and of programs in Triton."""
    if tiling.kind == Kind.PLAIN:
        return [kernel.linear_normed(normed, weight_FD, EPS)]
    if tiling.kind == Kind.GATED:
        return [kernel.linear_gated(normed, weight_FD, EPS)]
    begun, total_TF = kernel.linear_added(normed.rows_TD, weight_FD, stream_TF, norm_F, EPS, keep=True, offset=1.0)
    assert begun.squares_T is not None
    return [begun.rows_TD, begun.squares_T, total_TF]


@pytest.mark.parametrize("tiling", everything(), ids=str)
def test_a_product_in_tiles(tiling: PersistentTiling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines end inside a band; of the most rows CTAs take several tiles one after the other."""
    by_others(monkeypatch)
    for rows, outputs in ((65, 300), (200, 2 * tiling.band + LEFT), (257, 1500), (1000, 3000)):
        x_TD, weight_FD = randn(rows, 1024, dtype=torch.bfloat16), weight_of(outputs * tiling.halves, 1024)
        stream_TF, norm_F = randn(rows, outputs, seed=2, dtype=torch.bfloat16), randn(outputs, seed=3).bfloat16()
        waiting = (squares(rows, 1024), None) if tiling.kind != Kind.ADDED else (None,)
        for normed in (Normed(x_TD, squares_T) for squares_T in waiting):
            given = tiling, normed, weight_FD, stream_TF, norm_F
            for own, other in zip(in_tiles(*given), otherwise(*given), strict=True):
                assert torch.equal(own, other), (rows, outputs, normed.squares_T is None)
