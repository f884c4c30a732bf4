"""Times of single steps: plain, verify, draft; against the matrix products of cuBLAS and the bytes' floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from services.target.device.steps import kind_of
from tests.bench.gpu.rig import Rig
from tests.bench.gpu.shapes import draft_bytes, verify_bytes

Row = dict[str, Any]


def read_bandwidth(rig: Rig, count: int = 1 << 30) -> float:
    """Bytes per second of a sum over so many random numbers of four bytes: verifies read, and hardly write."""
    numbers = torch.randn(count, device=rig.device)
    return numbers.nbytes / rig.micros(numbers.sum, 5) * 1e6


def verify_rows(rig: Rig, buckets: tuple[int, ...], contexts: tuple[int, ...], bandwidth: float) -> list[Row]:
    """One row for each bucket, context and width: a replay of the captured greedy verify."""
    rows = []
    for bucket in buckets:
        for context in contexts:
            for width in rig.settings.widths:
                rig.seat(bucket, context)
                key = rig.verify_key(bucket, width, context)
                micros = rig.micros(lambda key=key: rig.steps.graphs.replay(key))  # type: ignore[misc]
                floor = verify_bytes(rig.settings.shape, bucket, context) / bandwidth * 1e6
                rows.append(_row("plain" if width == 1 else "verify", bucket, context, width, micros, floor))
    return rows


def sampled_rows(rig: Rig, buckets: tuple[int, ...], context: int) -> list[Row]:
    """Greedy against T = 0.8 with top-p 0.95 and a presence penalty, at the widest."""
    rows, width = [], rig.settings.widths[-1]
    for bucket in buckets:
        rig.seat(bucket, context)
        rig.slots.temperature_S[:bucket], rig.slots.top_p_S[:bucket] = 0.8, 0.95
        rig.slots.presence_penalty_S[:bucket], rig.slots.penalised_S[:bucket] = 0.5, True
        rig.slots.repetition_penalty_S[:bucket] = 1.0
        kind = kind_of(rig.pool.settings, (bucket, width), width, context + width)
        times = {
            mode: rig.micros(lambda mode=mode: rig.steps.run_verify(bucket, width, mode, kind))  # type: ignore[misc] # noqa: B023
            for mode in ("greedy", "full")
        }
        row = _row("sampled", bucket, context, width, times["full"], times["greedy"])
        rows.append({**row, "ratio": times["full"] / times["greedy"]})
        rig.slots.temperature_S[:bucket] = 0.0
    return rows


def draft_rows(rig: Rig, buckets: tuple[int, ...], contexts: tuple[int, ...], bandwidth: float) -> list[Row]:
    """Replays of the captured draft."""
    graphs, width, rows = rig.drafter(), rig.settings.widths[-1], []
    for bucket in buckets:
        for context in contexts:
            rig.seat(bucket, context)
            rig.worker.runner.publish()
            micros = rig.micros(lambda bucket=bucket: graphs.replay((bucket, width, False)))  # type: ignore[misc]
            floor = draft_bytes(rig.settings.shape, bucket, context) / bandwidth * 1e6
            rows.append(_row("draft", bucket, context, width, micros, floor))
    return rows


def product_rows(rig: Rig, tokens: Sequence[int]) -> list[Row]:
    """cuBLAS alone: every matrix product of a verify, captured, on weights of their own."""
    layers, rows = layer_matrices(rig), []
    head = rig.pool.model.lm_head_VD
    for count in tokens:
        inputs = {weight.shape[1]: matrix(rig, (count, weight.shape[1])) for weight in layers[0]}
        graphs = StepGraphsOf(rig, layers, head, inputs)
        rows.append(_row("products", count, 0, 1, rig.micros(graphs.run), 0.0))
    return rows


class StepGraphsOf:
    """One captured pass over all matrices."""

    def __init__(
        self, rig: Rig, layers: list[list[torch.Tensor]], head: torch.Tensor, inputs: dict[int, torch.Tensor]
    ) -> None:
        from services.common.device.graph import StepGraphs

        self._graphs = StepGraphs(rig.device)
        self._graphs.capture("products", lambda: _products(layers, head, inputs), ())

    def run(self) -> None:
        """Replays it."""
        self._graphs.replay("products")


def capture_equals_eager(rig: Rig, bucket: int, context: int) -> bool:
    """A replay and an uncaptured run of the widest verify from the same state leave the same bits."""
    width = rig.settings.widths[-1]
    step = rig.steps.verify(bucket, width, "greedy")
    rig.seat(bucket, context)
    rig.steps.graphs.replay(("verify", bucket, width, "greedy"))
    static, captured, tokens = step.logits_BWV, step.logits_BWV.clone(), step.result.packed_N.clone()
    rig.reset(bucket, context)
    step.run()
    same = torch.equal(captured, step.logits_BWV) and torch.equal(tokens, step.result.packed_N)
    step.logits_BWV = static
    rig.synchronise()
    return same and bool(captured.isfinite().all())


def _products(layers: list[list[torch.Tensor]], head: torch.Tensor, inputs: dict[int, torch.Tensor]) -> None:
    for layer in layers:
        for weight in layer:
            F.linear(inputs[weight.shape[1]], weight)
    F.linear(inputs[head.shape[1]], head)


def layer_matrices(rig: Rig) -> list[list[torch.Tensor]]:
    """Weights like those of every layer: qkv, o, gate and up, down."""
    shape = rig.settings.shape
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = [(queries + 2 * keys, shape.hidden), (shape.hidden, queries), (2 * shape.inner, shape.hidden)]
    sizes.append((shape.hidden, shape.inner))
    return [[matrix(rig, size) for size in sizes] for _ in range(shape.layers)]


def matrix(rig: Rig, size: tuple[int, int]) -> torch.Tensor:
    """Random numbers as small as weights."""
    return torch.randn(size, dtype=rig.pool.model.dtype, device=rig.device).mul_(0.02)


def _row(step: str, bucket: int, context: int, width: int, micros: float, floor: float) -> Row:
    return {
        "step": step,
        "bucket": bucket,
        "context": context,
        "width": width,
        "us": round(micros, 1),
        "floor_us": round(floor, 1),
    }
