"""Argmax against torch, ties included."""

import pytest
import torch

from services.common.kernels.best_token import kernel
from tests.gpu.kernels.devices import DTYPES, randn


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 50), (2, 3, 9000)])
def test_best_token(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    logits = randn(*shape, dtype=dtype)
    logits[..., 7] = logits[..., 11] = 50.0
    assert bool((kernel.best_token(logits) == 7).all())
    plain = randn(*shape, seed=3)
    assert torch.equal(kernel.best_token(plain), plain.argmax(-1))


def test_nan_never_wins() -> None:
    logits = randn(2, 40)
    logits[0, 3] = float("nan")
    assert kernel.best_token(logits)[0] != 3
