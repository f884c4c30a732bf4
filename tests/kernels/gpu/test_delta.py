"""Gated DeltaNet by kernels: close to the recurrence token by token, the same bits however rounds were cut."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.gated_delta.cut import Cut
from tests.kernels.gpu.delta_layer import TINY, Layer, away, padded
from tests.kernels.gpu.devices import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_and_rounds_read_the_same(dtype: torch.dtype) -> None:
    """To the bit, with NaN behind a chunk and in rejected rows, and close to the recurrence token by token."""
    layer = Layer(TINY, dtype)
    rows_TF = layer.rows(44)
    expected_TF, states_THKV = layer.expected(rows_TF)
    chunk_TF = layer.run([1], [0], padded(rows_TF, 48)[None], [44])[0]
    assert away(chunk_TF[:44], expected_TF) <= (1e-5 if dtype == torch.float32 else 1e-2)
    assert not chunk_TF[44:].any()
    assert away(layer.state_SHKV[1], states_THKV[31]) <= 1e-5

    first_TF = layer.run([2], [0], padded(rows_TF[:29], 30)[None], [29])[0]
    second_TF = layer.run([2], [29], padded(rows_TF[29:31], 4)[None])[0]
    third_TF = layer.run([2], [31], rows_TF[None, 31:35], cut=Cut(16, 1))[0]
    last_TF = layer.run([2], [35], rows_TF[None, 35:36])[0]
    found_TF = torch.cat((first_TF[:29], second_TF[:2], third_TF, last_TF))
    assert torch.equal(found_TF, chunk_TF[:36])
    assert torch.equal(layer.state_SHKV[2], layer.state_SHKV[1])
