"""Prompts in chunks against the same chunks' products in cuBLAS and torch's own attention, in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.kernels.span_attention import plan_span
from services.common.model.states.states import Part, Rows
from services.target.core.plan import Chunk
from services.target.device.packing import packed
from tests.bench.gpu.rig import Rig
from tests.bench.gpu.steps import layer_matrices, matrix

Row = dict[str, Any]


def prefill_rows(rig: Rig, lengths: Sequence[int]) -> list[Row]:
    """One row for each length, on an empty slot; a length shorter than a chunk is a chunk of its own."""
    yardstick = Yardstick(rig)
    rows = []
    for length in lengths:
        chunk = min(length, max(pack.rows for pack in rig.pool.settings.packs))
        count = length // chunk
        rig.seat(1, length)
        whole = rig.micros(lambda length=length, chunk=chunk: _prefill(rig, length, chunk), 1, 3)  # type: ignore[misc]
        products = yardstick.products(chunk) * count
        attention = sum(yardstick.attention(start, chunk) for start in range(0, length, chunk))
        context = context_write_us(rig, chunk) * count
        rows.append({
            "step": "prefill",
            "context": length,
            "chunk": chunk,
            "us": round(whole, 1),
            "products_us": round(products, 1),
            "attention_us": round(attention, 1),
            "ratio": round(whole / (products + attention), 3),
            "bar": 1.3,
            "context_write_us": round(context, 1),
            "context_write_share": round(context / whole, 4),
            "bar_share": 0.05,
            "tok_s": round(length / whole * 1e6),
        })  # fmt: skip
    return rows


class Yardstick:
    """What the arithmetic of a chunk takes in the libraries: the layers' products, and attention to all before it."""

    def __init__(self, rig: Rig) -> None:
        """Makes weights of its own."""
        self._rig = rig
        self._layers = layer_matrices(rig)

    def products(self, rows: int) -> float:
        """Microseconds of the products of all layers, captured; the head is not part of a prompt's chunk."""
        inputs = {weight.shape[1]: matrix(self._rig, (rows, weight.shape[1])) for weight in self._layers[0]}

        def run() -> None:
            for layer in self._layers:
                for weight in layer:
                    F.linear(inputs[weight.shape[1]], weight)

        return _captured_us(self._rig, run)

    def attention(self, start: int, rows: int) -> float:
        """Microseconds of all layers: rows see the context before them whole, and themselves causally.

        Two calls, since torch's causal mask is that of equal lengths; merging their results is not counted.
        """
        rig, shape = self._rig, self._rig.settings.shape
        query = matrix(rig, (shape.heads * rows, shape.head_dim)).view(1, shape.heads, rows, shape.head_dim)

        def keys(count: int) -> Tensor:
            flat = matrix(rig, (shape.kv_heads * count, shape.head_dim))
            return flat.view(1, shape.kv_heads, count, shape.head_dim)

        own, before = (keys(rows), keys(rows)), (keys(start), keys(start)) if start else None

        def run() -> None:
            F.scaled_dot_product_attention(query, *own, is_causal=True, enable_gqa=True)
            if before is not None:
                F.scaled_dot_product_attention(query, *before, enable_gqa=True)

        return _captured_us(rig, run) * shape.layers


def context_write_us(rig: Rig, rows: int) -> float:
    """Microseconds of projecting a chunk's features and writing the draft context."""
    pool, shape = rig.pool, rig.settings.shape
    context, draft_kv = pool.context, pool.draft_kv
    features = matrix(rig, (rows, len(shape.taps) * shape.hidden))
    zero_B = torch.zeros(1, dtype=torch.int64, device=rig.device)
    span = plan_span(pool.state.block_table_SN[:1], zero_B, rows, pool.settings.block_size)
    part = Part(span, torch.zeros(1, dtype=torch.int32, device=rig.device))
    return _captured_us(rig, lambda: context.write(features, Rows(part), draft_kv))


def _prefill(rig: Rig, length: int, chunk: int) -> None:
    for start in range(0, length, chunk):
        ids = tuple(range(17, 17 + chunk))
        for pack in packed([Chunk(0, 1, start, ids, last=False)], rig.pool.settings.packs):
            rig.steps.run_prefill(pack)


def _captured_us(rig: Rig, run: Any) -> float:
    graphs = StepGraphs(rig.device)
    graphs.capture("run", run, ())
    return rig.micros(lambda: graphs.replay("run"), 3, 3)
