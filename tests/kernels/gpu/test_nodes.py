"""Rounds of trees by kernel and in NumPy: reading them, choosing and walking, and moving what a path has left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from services.common.kernels import nodes
from services.common.kernels.accept import Entrant, RoundResult, SlotState, accept
from services.common.kernels.accept import kernel as accept_kernel
from services.common.kernels.nodes import Nodes, keep_path, kernel, read_nodes
from services.common.kernels.prepare_span import kernel as seat_kernel
from services.common.kernels.span_attention import Mask
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.kernels.gpu.test_commit import CONTEXT, SEED, SLOTS, VOCAB, assert_same, on_device, params_of

BLOCK_SIZE = 4
TABLE = [[3, 5, 8, 0], [1, 0, 0, 0], [7, 4, 2, 9], [0, 0, 0, 0]]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are allocated have arrays, those that `there` makes do not."""
    monkeypatch.setattr(nodes, "on_kernel", lambda tensor: False)


def there(host: Nodes) -> Nodes:
    """Copy trees to the device; lineages follow from ancestors."""
    bucket, width = host.depths_BW.shape
    lineage = torch.zeros((bucket, width, width), dtype=torch.int32)
    for line in range(bucket):
        for row in range(width):
            path = [one for one in range(width) if int(host.ancestors_BW[line, row]) >> one & 1]
            lineage[line, row, : len(path)] = torch.tensor(path, dtype=torch.int32)
    tensors = (host.parents_BK, host.depths_BW, host.ancestors_BW, lineage)
    parents_BK, depths_BW, ancestors_BW, lineage_BWW = (tensor.clone().to(DEVICE) for tensor in tensors)
    return Nodes(parents_BK, depths_BW, ancestors_BW, lineage_BWW, None)


def moved(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to(DEVICE) for tensor in tensors]


def random_tree(rng: random.Random, width: int) -> list[int]:
    near = rng.random()
    return [row if rng.random() < near else rng.randrange(row + 1) for row in range(width - 1)]


@pytest.mark.parametrize("width", [2, 7])
def test_trees_are_read_and_checked(width: int, host: None) -> None:
    """One is wrong, one has no room behind its fourth row, and one is that of the pad slot."""
    rng, rows = random.Random(width), torch.tensor([2, 0, 1, 3], dtype=torch.int32)
    parents = torch.tensor([random_tree(rng, width + 2) for _ in range(4)], dtype=torch.int32)
    parents[0, width - 2] = width + 40
    lengths, drafts = torch.tensor([7, 1, 6, 0]), torch.arange(4 * (width - 1)).view(4, -1)
    tables, expected, copy = torch.tensor(TABLE, dtype=torch.int32), Nodes.allocate(4, width), drafts.clone()
    read_nodes.reference(parents, rows, tables, lengths, BLOCK_SIZE, copy, expected)
    got, copied = there(Nodes.allocate(4, width)), drafts.clone().to(DEVICE)
    given, seats, blocks, ends = moved(parents, rows, tables, lengths)
    kernel.read_nodes(given, seats, blocks, ends, BLOCK_SIZE, copied, got)
    assert torch.equal(copied.cpu(), copy)
    assert (copy < 0).any()
    wanted = there(expected)
    for name in ("parents_BK", "depths_BW", "ancestors_BW"):
        assert torch.equal(getattr(got, name), getattr(wanted, name)), name
    for line, row in torch.cartesian_prod(torch.arange(4), torch.arange(width)).tolist():
        depth = int(expected.depths_BW[line, row])
        assert got.lineage_BWW is not None
        assert wanted.lineage_BWW is not None
        assert torch.equal(got.lineage_BWW[line, row, : depth + 1], wanted.lineage_BWW[line, row, : depth + 1])
    mask = Mask(depths_BW=got.depths_BW)
    _, span = seat_kernel.prepare_rows(seats, ends, ends, blocks, copied, width, BLOCK_SIZE, grown=mask)
    assert torch.equal(span.positions_BW.cpu(), lengths[rows.long(), None] + expected.depths_BW)


def test_the_widest_tree_is_read(host: None) -> None:
    rng, expected = random.Random(1), Nodes.allocate(1, 63)
    parents, rows = torch.tensor([random_tree(rng, 63)], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    table, length, drafts = torch.ones((1, 20), dtype=torch.int32), torch.zeros(1).long(), torch.ones(1, 62).long()
    read_nodes.reference(parents, rows, table, length, BLOCK_SIZE, drafts.clone(), expected)
    got = there(Nodes.allocate(1, 63))
    given, seats, blocks, ends, copied = moved(parents, rows, table, length, drafts)
    kernel.read_nodes(given, seats, blocks, ends, BLOCK_SIZE, copied, got)
    assert torch.equal(got.ancestors_BW.cpu(), expected.ancestors_BW)
    assert torch.equal(got.depths_BW.cpu(), expected.depths_BW)


def grow(nodes: Nodes, line: int, parents: Sequence[int]) -> None:
    nodes.parents_BK[line] = torch.tensor(parents)
    for row, parent in enumerate(parents, start=1):
        nodes.depths_BW[line, row] = nodes.depths_BW[line, parent] + 1
        nodes.ancestors_BW[line, row] = nodes.ancestors_BW[line, parent] | 1 << row


def right_drafts(rng: random.Random, chosen: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return drafts that are mostly what their parents choose, some of them twice, and some none."""
    return [rng.choice([chosen[parent]] * 5 + [-1, 3]) for parent in parents]


@pytest.mark.parametrize(
    ("mode", "together", "width"), [("greedy", 512, 6), ("full", 512, 2), ("full", 512, 6), ("full", 7, 6)]
)
def test_rounds_of_trees_equal_the_reference(
    mode: Any, together: int, width: int, host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept_kernel, "SCORED_ROWS", together)
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    committed = 0
    for _ in range(1 if INTERPRETED else 100):
        state = SlotState.allocate(SLOTS, VOCAB, CONTEXT, stop_ids=4, width=width + 1)
        for slot in (0, 1, 3):
            prompt = [rng.randrange(VOCAB) for _ in range(5)]
            state.admit(Entrant(slot, params_of(rng, mode == "greedy"), prompt, [9, 9]))
        rows = torch.tensor([3, 0, 1, SLOTS], dtype=torch.int32)
        logits = torch.randn((len(rows), width, VOCAB), generator=generator) * 2
        logits[3] = float("nan")
        nodes, drafts = Nodes.allocate(len(rows), width), torch.full((len(rows), width - 1), -1)
        for line in range(3):
            parents = random_tree(rng, width)
            grow(nodes, line, parents)
            drafts[line] = torch.tensor(right_drafts(rng, logits[line].argmax(-1).tolist(), parents))
        state.mask_SWN.random_(-(1 << 31), 1 << 31, generator=generator)
        walked = drafts[:3].clone()
        walked[torch.rand(walked.shape, generator=generator) < 0.2] = -1
        state.walked_SK[rows[:3].long(), : width - 1] = walked
        twin, result = on_device(state), RoundResult.allocate(len(rows), width, trees=True)
        got, grown = RoundResult.allocate(len(rows), width, DEVICE, trees=True), there(nodes)
        accept.reference(logits, drafts, rows, state, result, None, mode, nodes=nodes)
        scores, offered, seats = moved(logits, drafts, rows)
        accept_kernel.accept(scores, offered, seats, twin, got, None, mode, nodes=grown)
        assert_same(got, result)
        assert_same(twin, state)
        committed += int(result.accepted_B.sum())
    assert committed > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_what_a_path_has_left_moves_to_its_positions(dtype: torch.dtype) -> None:
    """Of three sequences: rows that others move to, a chain, and a path cut short; exponents of codes alike."""
    generator = torch.Generator().manual_seed(2)
    kv = torch.randint(-100, 100, (3, 2, 8, BLOCK_SIZE, 2, 24), generator=generator).to(dtype)
    caches = [kv, kv[..., 0].contiguous()]
    slots = torch.tensor([7, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 25, 26, 4, 5, 6, 27, 28])
    path, count = torch.tensor([[0, 2, 4, 5, 4, 5], [0, 1, 2, 3, 4, 5], [0, 3, 5, 3, 4, 5]]), torch.tensor([4, 6, 2])
    before, copies = kv.clone(), [cache.clone().to(DEVICE) for cache in caches]
    keep_path.reference(path, count, slots, caches)
    kernel.keep_path(path.to(DEVICE), count.to(DEVICE), slots.to(DEVICE), copies)
    for got, expected in zip(copies, caches, strict=True):
        assert torch.equal(got.cpu(), expected)
    assert not torch.equal(kv, before)
