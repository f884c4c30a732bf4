"""A head that leaves each tile's best beside its scores: the same scores, and the lowest token of the best ones."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import linear, linear_scored
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
VOCAB, DEPTH = 151_936, 2560
ROWS = [17, 24, 40, 64, 72, 96, 120, 128, 192, 224, 256, 320, 384, 448, 512]


@pytest.mark.parametrize("rows", ROWS)
def test_scores_have_the_same_bits_and_tiles_their_best(rows: int) -> None:
    """Scores of so many tokens are often equal in bfloat16; rows of zeros have equal ones alone."""
    x_TD = randn(rows, DEPTH, seed=rows, dtype=torch.bfloat16)
    x_TD[rows // 2] = 0.0
    scores_TV, best = linear_scored(x_TD, head())
    assert best is not None, "no form of this product leaves the best of tiles"
    assert torch.equal(scores_TV, linear(x_TD, head()))
    for number, part_TV in enumerate(scores_TV.float().split(best.tile, 1)):
        value_T = part_TV.amax(1)
        assert torch.equal(best.values_RT[:, number], value_T)
        first_T = (part_TV == value_T[:, None]).int().argmax(1) + number * best.tile
        assert torch.equal(best.lines_RT[:, number], first_T.int())


@pytest.mark.parametrize("spoilt", [math.nan, math.inf])
def test_a_tile_with_a_number_that_is_not_finite_says_so(spoilt: float) -> None:
    x_TD, weight = randn(40, DEPTH, dtype=torch.bfloat16).abs() + 0.1, head()[:24_576].clone()
    weight[777] = spoilt
    scores_TV, best = linear_scored(x_TD, weight)
    assert best is not None
    assert best.values_RT.isnan().any(0).nonzero().flatten().tolist() == [777 // best.tile]
    assert best.values_RT[:, 777 // best.tile].isnan().all()
    assert not scores_TV[:, 777].isfinite().any()


def test_few_rows_have_none() -> None:
    assert linear_scored(randn(8, DEPTH, dtype=torch.bfloat16), head())[1] is None


@cache
def head() -> Tensor:
    return randn(VOCAB, DEPTH, seed=7, dtype=torch.bfloat16).mul_(0.02)
