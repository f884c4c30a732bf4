"""What rounds of trees take beside rounds of chains, in one process: captured verifies and drafts, and their parts.

Weights are random. Rows are real ones, at a context of `CONTEXT` tokens each, and drafts are never right.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import torch

from services.common.device.graph import StepGraphs
from services.common.kernels.argmax_token import argmax_of_product, top_of_product
from services.common.kernels.linear.weight import Weight
from services.common.kernels.nodes import Nodes, keep_path, read_nodes
from services.common.model import load_block
from services.common.model.drafters.heads import log_chances
from services.common.model.drafters.nodes import CANDIDATES
from services.common.pair import attach
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.target.core.width import Tree, Width
from services.target.device.steps import kind_of, shape_of
from services.target.settings import TargetSettings
from tests.bench.gpu.nodes_verify import micros
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import SHAPES

CONTEXT, ROOM, BUCKETS = 300, 1024, (1, 8, 32)
REPEATS, THREADS = 40, 12
_NONE = 0, 0.0
MEMORY = 60 << 30
"""Of which a hundredth holds the graphs of all widths; with less there are no trees."""
_TOLD, _REPLAYS = 8, 10
"""Kernels that are told of, and rounds that are traced."""


def round_lines(name: str, device: str, buckets: Sequence[int] = BUCKETS) -> Iterator[str]:
    """Yield a line for each number of sequences: microseconds of verifies and drafts, of chains and of trees."""
    tiny = device == "cpu"
    widths, buckets = ((4, 8), (1, 2)) if tiny else ((4, 8, 16, 32), tuple(buckets))
    settings = RigSettings(
        SHAPES[name], device, "float32" if tiny else "bfloat16", buckets[-1], (1, *widths), CONTEXT + ROOM,
        1 << 30 if tiny else MEMORY,
    )  # fmt: skip
    module = "services.target.build_device"
    with (
        tempfile.TemporaryDirectory(prefix="pl") as folder,
        mock.patch("tests.bench.gpu.rig.TargetSettings", partial(TargetSettings, nodes=True, compile_threads=THREADS)),
        mock.patch(f"{module}.buckets_of", return_value=buckets),
        mock.patch("services.target.device.steps.MODES", ("greedy",)),
    ):
        rig = Rig(settings, Path(folder))
        chains = [width for width in widths if width <= SHAPES[name].block_size]
        trees = [Tree(width) for width in rig.pool.settings.trees]
        drafts = _drafts(rig, Path(folder) / "drafter", buckets, chains, trees)
        for bucket in buckets:
            rig.seat(bucket, CONTEXT, ROOM)
            _grow(rig, bucket)
            rig.worker.runner.publish()
            for what, run in (("verify", partial(_verify, rig)), ("draft", partial(_draft, drafts))):
                found = []
                for width in (*chains, *trees):
                    rig.reset(bucket, CONTEXT)
                    found.append(f"{width!r} {rig.micros(partial(run, bucket, width), REPEATS):.0f}")
                yield f"{name} {bucket}: {what} {', '.join(found)} us"
            if not tiny:
                yield from _kernels(rig, bucket)
        for bucket in buckets:
            yield from _parts(rig, bucket, int(trees[-1] if tiny else 16), device)


def _kernels(rig: Rig, bucket: int) -> Iterator[str]:
    """Yield what kernels of a verify of sixteen nodes take beside those of a chain, by how much they differ."""
    found = []
    for width in (16, Tree(16)):
        rig.reset(bucket, CONTEXT)
        found.append(traced(partial(_verify, rig, bucket, width)))
    chain, nodes = found
    names = sorted({*chain, *nodes}, key=lambda name: -abs(nodes.get(name, _NONE)[1] - chain.get(name, _NONE)[1]))
    for name in names[:_TOLD]:
        (before, took), (count, takes) = chain.get(name, _NONE), nodes.get(name, _NONE)
        yield f"  {bucket} x 16: {took:.1f} -> {takes:.1f} us of {before} -> {count} {name[:70]}"


def traced(run: Callable[[], object]) -> dict[str, tuple[int, float]]:
    """Return launches and microseconds of a round by kernel: from the end of the one before to its own end."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(_REPLAYS):
            run()
            torch.cuda.synchronize()
    on_device = [one for one in profile.events() if one.device_type.name == "CUDA"]
    spans = sorted((one.time_range.end, one.time_range.start, one.name) for one in on_device)
    taken: dict[str, list[float]] = {}
    before = 0.0
    for end, start, name in spans:
        taken.setdefault(name, []).append(end - max(before, start))
        before = end
    return {name: (len(each) // _REPLAYS, sum(each) / _REPLAYS) for name, each in taken.items()}


def _grow(rig: Rig, bucket: int) -> None:
    """Makes trees of the drafts: of every three nodes two follow one another, and one is a sibling."""
    parents_SK = rig.worker.arena.tensor(attach.PARENTS)
    count = parents_SK.shape[1]
    grown = [max(0, row - 1 - (row % 3 == 0)) for row in range(1, count + 1)]
    parents_SK[:bucket] = torch.tensor(grown, dtype=parents_SK.dtype, device=parents_SK.device)


def _verify(rig: Rig, bucket: int, width: Width) -> None:
    shape = shape_of(bucket, width)
    kind = kind_of(rig.pool.settings, shape, width, CONTEXT + ROOM // 2)
    rig.steps.graphs.replay((kind, *shape, "greedy"))


def _drafts(rig: Rig, folder: Path, buckets: Sequence[int], chains: Sequence[int], trees: Sequence[Tree]) -> StepGraphs:
    """Return captured drafts of chains and of trees."""
    device = str(rig.device)
    block = load_block(folder, rig.pool.model.dtype, device, random_weights=True)
    proposer, graphs = CheckpointProposer(block, rig.pool.model.dtype), StepGraphs(rig.device)
    shared = ArenaView.of(rig.worker.arena, 16)
    proposer.check(shared)
    pacer = DraftRunner(shared, proposer, 1, graphs, HostHandoff(rig.device))
    pacer.warm_up(buckets, chains, threads=THREADS, trees=[int(width) for width in trees])
    return graphs


def _draft(graphs: StepGraphs, bucket: int, width: Width) -> None:
    graphs.replay((bucket, int(width), isinstance(width, Tree)))


def _parts(rig: Rig, bucket: int, width: int, device: str) -> Iterator[str]:
    """Yield what a tree's round has beside a chain's, each part launched again and again."""
    pool, state = rig.pool, rig.pool.state
    rows_RD = torch.randn(bucket * (width - 1), pool.model.spec.hidden_size, device=device).to(pool.model.dtype)
    head_VD: Weight = torch.randn(pool.model.spec.vocab_size, rows_RD.shape[1], device=device).to(rows_RD.dtype)
    scores = torch.randn(bucket, width - 1, 1, CANDIDATES, device=device)
    nodes = Nodes.allocate(bucket, width, device)
    drafts_BK = torch.zeros((bucket, width - 1), dtype=torch.int64, device=device)
    rows_B = torch.arange(bucket, dtype=torch.int32, device=device)
    path_BW = torch.arange(width, device=device).expand(bucket, -1).clone()
    path_BW[:, 1:4] += 2
    count_B = torch.full((bucket,), 4, dtype=torch.int64, device=device)
    slots_T = torch.arange(bucket * width, device=device) + 64
    parents_SK = rig.worker.arena.tensor(attach.PARENTS)
    table_SN, length_S, size = state.block_table_SN, state.slots.length_S, pool.settings.block_size
    work: dict[str, Callable[[], object]] = {
        "best of a head": lambda: argmax_of_product(rows_RD, head_VD),
        "best eight": lambda: top_of_product(rows_RD, head_VD, CANDIDATES),
        "chances": lambda: log_chances(scores, None),
        "read nodes": lambda: read_nodes(parents_SK, rows_B, table_SN, length_S, size, drafts_BK, nodes),
        "keep paths": lambda: keep_path(path_BW, count_B, slots_T, pool.paged),
    }
    told = ", ".join(f"{name} {micros(run, device):.1f}" for name, run in work.items())
    yield f"parts of {bucket} x {width}: {told} us; {len(pool.paged)} caches"
