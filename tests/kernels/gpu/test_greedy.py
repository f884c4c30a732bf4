"""The best token of each tile by whole numbers is that of the scores: the lowest among equals, by any type."""

import math

import pytest
import torch
import triton

from services.common.kernels.accept.greedy import GREEDY_TILE, greedy_kernel
from services.common.kernels.pdl import LAUNCH, PDL
from tests.kernels.gpu.devices import DEVICE, DTYPES

VOCAB = 2 * GREEDY_TILE + 70


def best(logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The value and the token of every tile, by the kernel."""
    tiles = triton.cdiv(VOCAB, GREEDY_TILE)
    values = torch.empty((len(logits_RV), tiles), dtype=torch.float32, device=DEVICE)
    tokens = torch.empty((len(logits_RV), tiles), dtype=torch.int32, device=DEVICE)
    greedy_kernel[tuple(values.shape)](
        logits_RV.to(DEVICE), values, tokens, VOCAB, TILE=GREEDY_TILE, WIDE=logits_RV.dtype == torch.float32, PDL=PDL,
        **LAUNCH,
    )  # fmt: skip
    return values.cpu(), tokens.cpu()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [4.0, 0.5, 1e-30])
def test_it_is_the_lowest_token_of_the_best_score(dtype: torch.dtype, scale: float) -> None:
    """Scores of sixteen bits have many equals, and small whole numbers more."""
    generator = torch.Generator().manual_seed(5)
    logits_RV = (torch.randn((6, VOCAB), generator=generator) * scale).to(dtype)
    logits_RV[1:3] = (logits_RV[1:3] / scale).round()
    logits_RV[3] = -logits_RV[3].abs() - 1
    values_RT, tokens_RT = best(logits_RV)
    for tile, part in enumerate(logits_RV.float().split(GREEDY_TILE, 1)):
        expected_R, place_R = part.max(1).values, torch.tensor([int((row == row.max()).nonzero()[0]) for row in part])
        assert torch.equal(values_RT[:, tile], expected_R)
        assert torch.equal(tokens_RT[:, tile], (place_R + tile * GREEDY_TILE).int())


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_zeros_are_equal(dtype: torch.dtype) -> None:
    logits_RV = torch.full((1, VOCAB), -0.0, dtype=dtype)
    logits_RV[0, 9] = 0.0
    values_RT, tokens_RT = best(logits_RV)
    assert values_RT.eq(0).all()
    assert tokens_RT.tolist() == [[0, GREEDY_TILE, 2 * GREEDY_TILE]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spoilt", [math.nan, -math.nan, math.inf])
def test_a_tile_that_no_token_may_be_chosen_from_says_so(dtype: torch.dtype, spoilt: float) -> None:
    logits_RV = torch.full((1, VOCAB), -math.inf, dtype=dtype)
    logits_RV[0, GREEDY_TILE + 3] = math.copysign(math.nan, spoilt) if math.isnan(spoilt) else spoilt
    values_RT, _ = best(logits_RV)
    assert values_RT.isnan().tolist() == [[False, True, False]]
    assert values_RT[0, 0] == -math.inf
