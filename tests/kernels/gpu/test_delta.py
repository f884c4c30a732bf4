"""Gated DeltaNet by kernels: close to the recurrence token by token, the same bits however rounds were cut."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from services.common.kernels.gated_delta import kernel
from services.common.kernels.gated_delta.cut import Cut
from tests.kernels.gpu.delta_layer import NAN, QWEN, TINY, Layer, Shape, away
from tests.kernels.gpu.devices import DTYPES


def padded(rows_TF: Tensor, width: int) -> Tensor:
    return torch.cat((rows_TF, torch.full_like(rows_TF[:1], NAN).expand(width - len(rows_TF), -1)))


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels in CUDA C++")
@pytest.mark.parametrize("shape", [QWEN, Shape(4, 12, 128, 128, 16)])
@pytest.mark.parametrize(("starts", "valid"), [([0, 0], [160, 91]), ([45, 16], [160, 91]), ([31, 16], [1, 0])])
def test_chunks_in_cuda_have_the_bits_of_those_in_triton(shape: Shape, starts: list[int], valid: list[int]) -> None:
    """From the start and within a block, where rows are absent, ill, or wait in the ring; two or three heads a key."""
    with mock.patch.object(kernel, "_read_chunk", wraps=kernel._read_chunk) as served:
        found = [_spans(shape, starts, valid, cut) for cut in (None, Cut(64, 4, 3))]
    assert served.call_count == 1, "another GPU"
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def _spans(shape: Shape, starts: list[int], valid: list[int], cut: Cut | None) -> list[Tensor]:
    """What two spans of 160 rows read, states and rings; rows before `starts` are brought by the kernels in Triton."""
    layer = Layer(shape, torch.bfloat16)
    for slot, start in enumerate(starts):
        if start:
            layer.run([slot], [0], padded(layer.rows(start, seed=slot), 64)[None], [start], cut=Cut(64, 4, 3))
    rows_BWF = torch.stack([layer.rows(160, seed=5), layer.rows(160, seed=6)])
    rows_BWF[0, 33, 100] = rows_BWF[1, 60, -5] = NAN
    return [layer.run([0, 1], starts, rows_BWF, valid, cut=cut), layer.state_SHKV, layer.ring_SRC]
