"""Skinny products against torch."""

import pytest
import torch

from services.common.kernels.linear import kernel
from tests.gpu.kernels.devices import DTYPES, close, randn


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "outputs", "depth"), [(1, 40, 48), (16, 96, 300), (17, 40, 48)])
def test_linear(rows: int, outputs: int, depth: int, dtype: torch.dtype) -> None:
    x, weight = randn(rows, depth, dtype=dtype), randn(outputs, depth, seed=1, dtype=dtype) * depth**-0.5
    close(kernel.linear(x, weight), torch.nn.functional.linear(x, weight))
