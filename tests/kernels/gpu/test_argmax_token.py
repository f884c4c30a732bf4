"""Argmax against torch, ties included."""

import pytest
import torch

from services.common.kernels.argmax_token import argmax_of_product, kernel
from tests.kernels.gpu.devices import DTYPES, randn


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 50), (2, 3, 9000)])
def test_best_token(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    logits = randn(*shape, dtype=dtype)
    logits[..., 7] = logits[..., 11] = 50.0
    assert bool((kernel.argmax_token(logits) == 7).all())
    plain = randn(*shape, seed=3)
    assert torch.equal(kernel.argmax_token(plain), plain.argmax(-1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [0, 4096, 8192])
def test_the_best_of_a_product_in_pieces(columns: int, dtype: torch.dtype) -> None:
    rows, weight = randn(5, 64, dtype=dtype), randn(9000, 64, seed=1, dtype=dtype)
    best = torch.tensor([0, 4095, 700, 8191, 8200], device=rows.device)
    weight[best] = 3 * rows
    weight[8999] = weight[700]
    assert torch.equal(kernel.argmax_of_product(rows, weight, columns=columns), best)
    assert torch.equal(argmax_of_product.reference(rows, weight), best)


def test_nan_never_wins() -> None:
    logits = randn(2, 40)
    logits[0, 3] = float("nan")
    assert kernel.argmax_token(logits)[0] != 3
