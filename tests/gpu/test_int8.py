"""On a GPU a product of whole numbers is the exact sum, at any number of rows and by any cut of the table."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from services.common.kernels.argmax_token import argmax_of_product, argmax_token
from services.common.kernels.linear import Normed, int8_kernel, reference
from services.common.kernels.linear.cuda import Ends, Kind
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from services.common.kernels.linear.persistent.tiling import PersistentTiling, few_cut
from services.common.kernels.linear.tiling import Int8Cut
from tests.bench.gpu.int8.eight import everything
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
EPS, DEPTH, ROWS = 1e-6, 1024, (65, 96, 128, 200, 256, 480, 512, 1000, 2048)
TRITON = Int8Cut(64, 64, 256, stages=5)
WAVES = 1500
"""Lines of which the tiles of 2,048 rows are more than run at once."""


@pytest.mark.parametrize("depth_outputs", [(2560, 6144), (4096, 2560), (2560, 19456), (9728, 2560), (256, 512)])
def test_a_row_is_the_same_at_any_number_of_rows(depth_outputs: tuple[int, int]) -> None:
    depth, outputs = depth_outputs
    x = randn(530, depth, dtype=torch.bfloat16)
    weight = quantised(randn(outputs, depth, seed=1, dtype=torch.bfloat16).mul_(depth**-0.5))
    expected = reference.linear(x, weight)
    for rows in (1, 5, 16, 17, 32, 64, 65, 128, 129, 256, 257, 530):
        assert torch.equal(int8_kernel.linear(x[:rows], weight), expected[:rows]), rows


@cache
def operands() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, squares that they wait for, a stream and a norm."""
    x_TD, stream_TF = randn(2048, DEPTH, dtype=torch.bfloat16), randn(2048, WAVES, seed=2, dtype=torch.bfloat16)
    squares_T = (randn(2048, seed=4).abs() * DEPTH * 2**24).long() + 1
    return x_TD, squares_T, stream_TF, randn(WAVES, seed=3, dtype=torch.bfloat16)


@cache
def weight_of(lines: int) -> Int8Weight:
    return quantised(randn(lines, DEPTH, seed=1, dtype=torch.bfloat16).mul_(DEPTH**-0.5))


def product(rows: int, lines: int, kind: Kind, waits: bool, cut: Int8Cut | PersistentTiling) -> list[Tensor]:
    """Return all that a product leaves."""
    (x_TD, squares_T, stream_TF, norm_F), weight = operands(), weight_of(lines * (1 + (kind == Kind.GATED)))
    normed = Normed(x_TD[:rows], squares_T[:rows] if waits else None)
    if kind == Kind.GATED:
        return [int8_kernel.linear_gated(normed, weight, EPS, cut)]
    if kind == Kind.PLAIN:
        return [int8_kernel._launch(normed, weight, kind, Ends.of(normed, lines), cut, EPS)]
    beside_TF, added_T = stream_TF[:rows, :lines].contiguous(), torch.full_like(squares_T[:rows], 3)
    sums, total_TF = int8_kernel.linear_added(x_TD[:rows], weight, beside_TF, norm_F[:lines], EPS, 0.5, added_T, cut)
    return [total_TF, sums.rows_TD, added_T]


@pytest.mark.parametrize("tiling", everything(), ids=str)
def test_a_tiling_in_cuda_has_the_bits_of_triton(tiling: PersistentTiling) -> None:
    """Lines end inside a band; of the most rows CTAs take several tiles one after the other."""
    for rows in ROWS:
        lines = WAVES if rows >= 1000 else tiling.band * 2 + 20
        for waits in (False, True) if tiling.kind != Kind.ADDED else (False,):
            got = product(rows, lines, tiling.kind, waits, tiling)
            for one, other in zip(got, product(rows, lines, tiling.kind, waits, TRITON), strict=True):
                assert torch.equal(one, other), (rows, lines, waits)


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.GATED, Kind.ADDED])
@pytest.mark.parametrize("lines", [132, WAVES])
def test_few_rows_have_the_bits_of_triton(kind: Kind, lines: int) -> None:
    tiling = few_cut(lines * (1 + (kind == Kind.GATED)), DEPTH, 64, kind, wide=False)
    for rows in (1, 5, 8, 16, 24, 33, 48, 64):
        for waits in (False, True) if kind != Kind.ADDED else (False,):
            got = product(rows, lines, kind, waits, tiling)
            for one, other in zip(got, product(rows, lines, kind, waits, TRITON), strict=True):
                assert torch.equal(one, other), (rows, waits)


@pytest.mark.parametrize("tiling", everything()[:1], ids=str)
def test_a_tiling_in_cuda_has_the_exact_sums(tiling: PersistentTiling) -> None:
    x_TD, weight = operands()[0][:200], weight_of(WAVES)
    assert torch.equal(int8_kernel.linear(x_TD, weight, cut=tiling), reference.linear(x_TD, weight))


@pytest.mark.parametrize("tiling", everything()[:1], ids=str)
def test_lines_of_a_weight_are_multiplied_where_they_lie(tiling: PersistentTiling) -> None:
    x_TD, weight = operands()[0][:200], weight_of(WAVES)
    whole_TF = int8_kernel.linear(x_TD, weight, cut=TRITON)
    assert torch.equal(int8_kernel.linear(x_TD, weight.lines(514, 1214), cut=tiling), whole_TF[:, 514:1214])


@pytest.mark.parametrize("rows", [1, 8, 15, 24, 57, 64, 65, 120, 192, 224, 256, 300, 384, 448, 500, 640, 896, 1920])
def test_the_best_token_of_a_head_is_that_of_all_its_scores(rows: int) -> None:
    """Scores of so many tokens are often equal in bfloat16; rows without any number have token 0."""
    x_RD, head = randn(rows, 2560, dtype=torch.bfloat16), head_of(151_936)
    x_RD[rows // 2] = 0.0
    expected = argmax_token(int8_kernel.linear(x_RD, head))
    assert torch.equal(argmax_of_product(x_RD, head), expected)
    assert expected[rows // 2] == 0
    x_RD[0] = torch.nan
    got = argmax_of_product(x_RD, head)
    assert torch.equal(got[1:], expected[1:])
    assert 0 <= got[0] < len(head)


@cache
def head_of(vocab: int) -> Int8Weight:
    return quantised(randn(vocab, 2560, seed=7, dtype=torch.bfloat16).mul_(0.02))
