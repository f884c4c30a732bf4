"""Rows that are drawn with the target's noise, by kernels and on a CPU."""

import pytest
import torch

from services.common.kernels.argmax_token import Draws, argmax_of_product, kernel, top, top_of_product
from tests.kernels.gpu.devices import DEVICE, DTYPES, randn

VOCAB, DRAFTS, CANDIDATES = 2 * 4096 + 37, 3, 16
TEMPERATURES = (0.8, 0.0, 1.5, 0.3)


def _draws(where: str, first: int = 0) -> Draws:
    """Of four sequences in slots out of order; the second is greedy, and one seed is above the signed ones."""
    rows = torch.tensor([3, 0, 5, 1], dtype=torch.int32, device=where)
    seed, length = torch.zeros(7, dtype=torch.int64), torch.zeros(7, dtype=torch.int64)
    heat = torch.zeros(7, dtype=torch.float32)
    seed[rows.long().cpu()] = torch.tensor([7, 8, -2, 1 << 40])
    length[rows.long().cpu()] = torch.tensor([0, 12, 300, 8191])
    heat[rows.long().cpu()] = torch.tensor(TEMPERATURES)
    return Draws(rows, seed.to(where), length.to(where), heat.to(where), 1.3, first)


def _product(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return randn(4 * DRAFTS, 32, dtype=dtype), randn(VOCAB, 32, seed=2, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [0, 4096])
def test_the_best_drawn_token(columns: int, dtype: torch.dtype) -> None:
    rows, weight = _product(dtype)
    got = kernel.argmax_of_product(rows, weight, _draws(DEVICE, 2), columns).cpu()
    found = _draws("cpu", 2).of(rows.cpu() @ weight.cpu().T)
    # Where two are as near as the product's rounding either may be the best.
    best = found.max(-1).values
    assert (best - found.gather(1, got[:, None])[:, 0]).max() <= (1e-4 if dtype == torch.float32 else 0.2)
    greedy = kernel.argmax_of_product(rows, weight, None, columns).cpu()
    assert torch.equal(got[DRAFTS : 2 * DRAFTS], greedy[DRAFTS : 2 * DRAFTS])
    assert not torch.equal(got, greedy)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("columns", [0, top.TOP_TILE])
def test_the_best_drawn_tokens(columns: int, mapped: bool) -> None:
    """Of all tokens in their order, and of those that a drafter's vocabulary names."""
    rows, weight = _product(torch.float32)
    order = torch.randperm(3 * VOCAB, generator=torch.Generator().manual_seed(5))[:VOCAB]
    here, there = (_draws(where)._replace(tokens_V=order.to(where) if mapped else None) for where in (DEVICE, "cpu"))
    values, ids = top.top_of_product(rows, weight, CANDIDATES, here, columns)
    expected, tokens = top_of_product.reference(rows.cpu(), weight.cpu(), CANDIDATES, there)
    torch.testing.assert_close(values.cpu(), expected, atol=1e-4, rtol=1e-5)
    assert torch.equal(ids.cpu(), tokens)
    best = argmax_of_product.reference(rows.cpu(), weight.cpu(), there)
    assert torch.equal(ids[:, 0].cpu(), best)
    assert torch.equal(kernel.argmax_of_product(rows, weight, here, 4096).cpu(), best)


def test_a_row_draws_alike_in_any_company() -> None:
    rows, weight = _product(torch.float32)
    draws = _draws(DEVICE)
    every = top.top_of_product(rows, weight, CANDIDATES, draws)
    for index in range(4):
        own = draws._replace(rows_B=draws.rows_B[index : index + 1])
        alone = top.top_of_product(rows[index * DRAFTS : (index + 1) * DRAFTS], weight, CANDIDATES, own)
        for one, all_of in zip(alone, every, strict=True):
            assert torch.equal(one, all_of[index * DRAFTS : (index + 1) * DRAFTS])
