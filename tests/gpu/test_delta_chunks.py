"""Chunks of Gated DeltaNet in CUDA C++ have the bits of those in Triton."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from services.common.kernels.gated_delta import kernel
from services.common.kernels.gated_delta.cut import Cut
from tests.kernels.gpu.delta_layer import NAN, QWEN, Layer, Shape, padded
from tests.kernels.gpu.devices import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")


@pytest.mark.parametrize("shape", [QWEN, Shape(4, 12, 128, 128, 16)])
@pytest.mark.parametrize(("starts", "valid"), [([0, 0], [160, 91]), ([45, 16], [160, 91]), ([31, 16], [1, 0])])
def test_chunks_in_cuda_have_the_bits_of_those_in_triton(shape: Shape, starts: list[int], valid: list[int]) -> None:
    """From the start and within a block, where rows are absent, ill, or wait in the ring; two or three heads a key."""
    with mock.patch.object(kernel, "_read_chunk", wraps=kernel._read_chunk) as served:
        found = [_spans(shape, starts, valid, cut) for cut in (None, Cut(64, 4, 3))]
    assert served.call_count == 1, "another GPU"
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(("start", "valid"), [(0, 1152), (45, 1100), (45, 300)])
def test_a_long_prompt_has_the_bits_of_one_in_triton(start: int, valid: int, captured: bool) -> None:
    """Rows may end in any block."""
    found = [_long(start, valid, cut, captured) for cut in (None, Cut(64, 4, 3))]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def _long(start: int, valid: int, cut: Cut | None, captured: bool) -> list[Tensor]:
    """What a span of 1,152 rows reads, its state and its ring, once eagerly or in a graph of two layers."""
    layers = [Layer(QWEN, torch.bfloat16) for _ in range(2 if captured else 1)]
    for layer in layers:
        if start:
            layer.run([0], [0], padded(layer.rows(start), 64)[None], [start], cut=Cut(64, 4, 3))
    spans = [layer.span([0], [start], 1152, [valid]) for layer in layers]
    rows_BWF = padded(layers[0].rows(valid, seed=5), 1153)[None, :1152]
    if not captured:
        torch.cuda.synchronize()
        return [layers[0].take(spans[0], rows_BWF, cut), layers[0].state_SHKV, layers[0].ring_SRC]
    graph = torch.cuda.CUDAGraph()
    Layer(QWEN, torch.bfloat16).run([0], [0], rows_BWF, [valid], cut=cut)  # compiles
    with torch.cuda.graph(graph):
        reads = [layer.take(span, rows_BWF, cut) for layer, span in zip(layers, spans, strict=True)]
    graph.replay()
    torch.cuda.synchronize()
    return [x for layer in layers for x in (layer.state_SHKV, layer.ring_SRC)] + reads


def _spans(shape: Shape, starts: list[int], valid: list[int], cut: Cut | None) -> list[Tensor]:
    """What two spans of 160 rows read, states and rings; rows before `starts` are brought by the kernels in Triton."""
    layer = Layer(shape, torch.bfloat16)
    for slot, start in enumerate(starts):
        if start:
            layer.run([slot], [0], padded(layer.rows(start, seed=slot), 64)[None], [start], cut=Cut(64, 4, 3))
    rows_BWF = torch.stack([layer.rows(160, seed=5), layer.rows(160, seed=6)])
    rows_BWF[0, 33, 100] = rows_BWF[1, 60, -5] = NAN
    return [layer.run([0, 1], starts, rows_BWF, valid, cut=cut), layer.state_SHKV, layer.ring_SRC]
