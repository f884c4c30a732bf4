"""What a verify of trees takes beside one of chains of as many rows, and what attention and choosing nodes take.

The targets have random weights, two buckets and greedy steps alone, and are timed at warm-up.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import torch

from services.common.kernels.choose_nodes import choose_nodes
from services.common.kernels.span_attention import Mask, Span, attend_span, plan_span
from services.common.model.drafters.nodes import CANDIDATES
from services.target.build_device import build_worker
from services.target.core.width import Tree, Width
from services.target.settings import TargetSettings
from tests.bench.gpu.shapes import SHAPES
from tests.support.tiny_checkpoints import write_configs

BANDWIDTH = 4.3e12
"""Bytes a second of an H200."""
BUCKETS, POSITIONS = (1, 8), 15
REPEATS = 200
HEADS = (("SmolLM2", 9, 3, 64), ("Qwen3-4B", 32, 8, 128))
SHORT = 1024


def choice_lines(device: str) -> Iterator[str]:
    """Yield a line for each number of sequences and form of scores: microseconds in which 15 nodes are chosen."""
    for batch, befores in product((1, 8, 32), (1, CANDIDATES)):
        ids = torch.randint(1000, (batch, POSITIONS, CANDIDATES), device=device)
        scores = torch.randn(batch, POSITIONS, befores, CANDIDATES, device=device).log_softmax(-1)
        yield f"choose 15 nodes of {batch} sequences, {befores} before: {_micros(ids, scores, device):.1f} us"


def _micros(ids: torch.Tensor, scores: torch.Tensor, device: str) -> float:
    """Of one choice."""
    return micros(lambda: choose_nodes(ids, scores, POSITIONS), device)


def micros(work: Callable[[], object], device: str) -> float:
    """Of one piece of work among many in a row; in a graph on a GPU, where a launch takes the host longer."""

    def run(repeats: int) -> None:
        for _ in range(repeats):
            work()

    run(1)
    if device != "cuda":
        start = time.perf_counter()
        run(2)
        return (time.perf_counter() - start) / 2 * 1e6
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(REPEATS)
    graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / REPEATS * 1e6


def attention_lines(device: str) -> Iterator[str]:
    """Yield a line for each shape of heads, number of sequences and length: microseconds of chains and of trees."""
    contexts = (0, 500, 1000, 4000) if device == "cuda" else (0,)
    batches = (1, 8, 32) if device == "cuda" else (1,)
    for (name, heads, kv_heads, size), batch in product(HEADS, batches):
        for length in contexts:
            chain, tree = (micros(work, device) for work in _attention(heads, kv_heads, size, batch, length, device))
            yield (
                f"attention of {name} {batch} x {POSITIONS + 1} at {length}: "
                f"chain {chain:.1f} us, nodes {tree:.1f} us, {tree - chain:+.1f}"
            )


def _attention(
    heads: int, kv_heads: int, size: int, batch: int, length: int, device: str
) -> list[Callable[[], torch.Tensor]]:
    """Return attention of chains and of random trees, cut for short contexts where they are."""
    width, block = POSITIONS + 1, 16
    columns = -(-(length + width) // block)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    table = 1 + torch.arange(batch * columns, dtype=torch.int32, device=device).view(batch, columns)
    kv = torch.randn(2, 1 + batch * columns, block, kv_heads, size, device=device).to(kind)
    q = torch.randn(batch, width, heads, size, device=device).to(kind)
    lengths = torch.full((batch,), length, device=device)

    def span(mask: Mask) -> Span:
        return replace(plan_span(table, lengths, width, block, mask=mask), short=length <= SHORT)

    rng = random.Random(batch)
    masks = Mask(), drawn_trees([[rng.randrange(row) for row in range(1, width)] for _ in range(batch)], device)
    return [lambda span=span(mask): attend_span(q, kv, span) for mask in masks]  # type: ignore[misc]


def drawn_trees(trees: Sequence[Sequence[int]], device: str) -> Mask:
    """Return the mask of trees that are given by the parents of drafts."""
    bits, lineage, depths = [], [], []
    for parents in trees:
        paths = [[0]]
        for row, parent in enumerate(parents, start=1):
            paths.append([*paths[parent], row])
        bits.append([sum(1 << row for row in path) for path in paths])
        depths.append([len(path) - 1 for path in paths])
        lineage.append([path + [path[-1]] * (len(paths) - len(path)) for path in paths])
    ancestors_BW, depths_BW = torch.tensor(bits, device=device), torch.tensor(depths, device=device)
    lineage_BWW = torch.tensor(lineage, dtype=torch.int32, device=device)
    return Mask(ancestors_BW=ancestors_BW, lineage_BWW=lineage_BWW, depths_BW=depths_BW)


def verify_lines(shapes: Sequence[str], rows: Sequence[int], device: str) -> Iterator[str]:
    """Yield a line for each shape, bucket and number of rows: microseconds, their ratio, and the floor of weights."""
    for name in shapes:
        costs, weights = _costs(name, rows, device)
        for bucket, width in product(BUCKETS, rows):
            chain, tree = costs[bucket, width], costs[bucket, Tree(width)]
            yield (
                f"{name} {bucket} x {width}: chain {chain:.0f} us, nodes {tree:.0f} us, "
                f"ratio {tree / chain:.3f}, weights at 4.3 TB/s {weights / BANDWIDTH * 1e6:.0f} us"
            )


def _costs(name: str, rows: Sequence[int], device: str) -> tuple[Mapping[tuple[int, Width], float], int]:
    """Return microseconds of a verify by bucket and width, chains and trees, and the bytes of the target's weights."""
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = write_configs(Path(folder), SHAPES[name])
        settings = TargetSettings(
            model=str(pair.target), drafter_model=str(pair.drafter), drafter_address="unix:/nowhere",
            random_weights=True, device=device, dtype="bfloat16" if device == "cuda" else "float32",
            context_limit=2048, memory_bytes=(40 if device == "cuda" else 1) << 30, adaptive=False, slots=BUCKETS[-1],
            widths=(1, *rows), nodes=True, compile_threads=12,
        )  # fmt: skip
        with (
            mock.patch("services.target.build_device.buckets_of", return_value=BUCKETS),
            mock.patch("services.target.device.steps.MODES", ("greedy",)),
        ):
            worker = build_worker(settings, os.getpid())
        try:
            model = worker.runner.pool.model
            return dict(worker.costs()), model.elements * model.dtype.itemsize
        finally:
            worker.close()
