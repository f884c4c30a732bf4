"""Attention along trees: each node has the bits of its path as a chain, in any tree, cut and company."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from services.common.kernels.kv_codes.reference import widened
from services.common.kernels.span_attention import Mask, Span, kernel, plan_span
from services.common.kernels.span_attention.cut import Cut
from services.common.kernels.span_attention.splits import MOST_SPLITS, TILE_TOKENS, split_tokens
from services.common.kernels.span_attention.tree import kernel as tree
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED, randn

BLOCK_SIZE = 4
FULL = MOST_SPLITS * TILE_TOKENS
"""Positions of which every split has one tile."""
WIDTH = 7
TREES = ([0, 0, 2, 3, 4, 1], [0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 5], [0, 0, 0, 0, 0, 0])
LENGTHS: tuple[int, ...] = (TILE_TOKENS - 3, FULL - 2, FULL + TILE_TOKENS + 1, 0)
"""Paths that cross the end of a tile, and of a split; rows with splits of two sizes; long splits; no context."""


def rows_of(parents: Sequence[int]) -> list[list[int]]:
    """The rows of each node's path, its own last."""
    paths = [[0]]
    for row, parent in enumerate(parents, start=1):
        paths.append([*paths[parent], row])
    return paths


def grown(trees: Sequence[Sequence[int]], table: Tensor, lengths: Sequence[int]) -> Span:
    """Plan a span of trees."""
    width, every = len(trees[0]) + 1, [rows_of(parents) for parents in trees]
    lineage = [[[*path, *[path[-1]] * (width - len(path))] for path in paths] for paths in every]
    bits = torch.tensor([[sum(1 << row for row in path) for path in paths] for paths in every], device=DEVICE)
    depths_BW = torch.tensor([[len(path) - 1 for path in paths] for paths in every], device=DEVICE)
    lineage_BWW = torch.tensor(lineage, dtype=torch.int32, device=DEVICE)
    mask = Mask(ancestors_BW=bits, lineage_BWW=lineage_BWW, depths_BW=depths_BW)
    return plan_span(table, torch.tensor(lengths, device=DEVICE), width, BLOCK_SIZE, mask=mask)


def shuffled(lengths: Sequence[int], width: int) -> Tensor:
    """Return a table of blocks in no order, the pad block in none of them."""
    columns = -(-(max(lengths) + width) // BLOCK_SIZE)
    order = torch.randperm(len(lengths) * columns, generator=torch.Generator().manual_seed(1)) + 1
    return order.view(len(lengths), columns).to(torch.int32).to(DEVICE)


def chains(kv: Tensor, table: Tensor, lengths: Sequence[int], trees: Sequence[Sequence[int]]) -> tuple[Tensor, Span]:
    """Return memory in which each node is the last row of a sequence of its own, and the span of these rows."""
    places = torch.arange(table.shape[1] * BLOCK_SIZE, device=DEVICE)
    own, ends = [], []
    for row, (length, parents) in enumerate(zip(lengths, trees, strict=True)):
        held = kv[:, table[row].long()].flatten(1, 2)
        for path in rows_of(parents):
            moved = places.clone()
            moved[length : length + len(path)] = length + torch.tensor(path, device=DEVICE)
            own.append(held[:, moved].unflatten(1, (-1, BLOCK_SIZE)))
            ends.append(length + len(path) - 1)
    count, columns = len(own), table.shape[1]
    tables = 1 + torch.arange(count * columns, dtype=torch.int32, device=DEVICE).view(count, columns)
    span = plan_span(tables, torch.tensor(ends, device=DEVICE), 1, BLOCK_SIZE)
    return torch.cat((kv[:, :1], *own), 1), span


def assert_chains(
    q: Tensor, kv: Tensor, table: Tensor, lengths: Sequence[int], trees: Sequence[Sequence[int]],
    cuts: Sequence[tuple[int, bool]] = (), patch: pytest.MonkeyPatch | None = None,
) -> None:  # fmt: skip
    """Compare every node with plain decoding of the last token of its path.

    Cuts are numbers of programs, and whether each takes as many nodes as a tile holds.
    """
    alone = kernel.attend_span(q.flatten(0, 1)[:, None].contiguous(), *chains(kv, table, lengths, trees))
    for count, together in cuts or ((0, False),):
        if patch:
            patch.setattr(tree, "cut_span", lambda *_, count=count: Cut(16, count))
            patch.setattr(tree, "_AT_ONCE", 0 if together else 1 << 30)
        got = kernel.attend_span(q, kv, grown(trees, table, lengths))
        assert torch.equal(got.flatten(0, 1), alone[:, 0]), (count, together)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_node_has_the_bits_of_plain_decoding(
    dtype: torch.dtype, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert split_tokens(LENGTHS[1] + 1) < split_tokens(LENGTHS[1] + WIDTH)
    cuts, lengths = list(product((1, 2, 3, MOST_SPLITS), (True, False))), LENGTHS
    if INTERPRETED and not full:
        cuts, lengths = [(1, True), (2, True), (MOST_SPLITS, False)], LENGTHS[:2]
    table = shuffled(lengths, WIDTH)
    kv = randn(2, 1 + table.numel(), BLOCK_SIZE, 1, 32, seed=2, dtype=dtype)
    kv[:, 0] = float("nan")
    q = 2 * randn(len(lengths), WIDTH, 2, 32, dtype=dtype)
    assert_chains(q, kv, table, lengths, TREES[: len(lengths)], cuts, monkeypatch)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beside", [2] if INTERPRETED else [4, 2])
def test_a_tile_may_have_more_nodes_than_lie_beside_one_another(
    beside: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its context is read once for all of them. The last program of 20 nodes has fewer than the others."""
    tile, nodes, width = (16, 4, 6) if INTERPRETED else (64, 16, 20)  # NumPy adds wide tiles in another order
    rng, lengths = random.Random(beside), LENGTHS[:2] if INTERPRETED else LENGTHS
    trees = [[max(0, row - rng.randrange(1, 5)) for row in range(width - 1)] for _ in lengths]
    monkeypatch.setattr(tree, "cut_span", lambda *_: Cut(tile, 1))
    monkeypatch.setattr(tree, "nodes_together", lambda *_: beside)
    monkeypatch.setattr(tree, "reads_once", lambda *_: True)
    assert tree.nodes_of(beside, width, 3, tile) == (nodes, tile)
    table = shuffled(lengths, width)
    kv = randn(2, 1 + table.numel(), BLOCK_SIZE, 2, 32, seed=2, dtype=dtype)
    kv[:, 0] = float("nan")
    assert_chains(2 * randn(len(lengths), width, 6, 32, dtype=dtype), kv, table, lengths, trees)


def test_a_context_is_read_once_where_that_gains() -> None:
    """By measurement: four programs of sixteen rows each read short contexts, unless sequences are many."""
    alone, shared = Cut(64, 1), Cut(64, 2)
    assert tree.reads_once(384, 4, alone, short=True)
    assert not tree.reads_once(96, 4, alone, short=True)
    assert not tree.reads_once(384, 2, alone, short=True)
    assert tree.reads_once(96, 2, alone, short=False)
    assert not (tree.reads_once(384, 4, shared, short=False) or tree.reads_once(384, 1, alone, short=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "heads", "kv_heads", "size"), [(2, 2, 2, 16), (2, 20, 1, 24), (9, 3, 1, 16)])
def test_trees_of_any_shape(width: int, heads: int, kv_heads: int, size: int, dtype: torch.dtype) -> None:
    rng, lengths = random.Random(width), (TILE_TOKENS + 5,)
    trees = [[rng.randrange(row + 1) for row in range(width - 1)] for _ in lengths]
    table = shuffled(lengths, width)
    kv = randn(2, 1 + table.numel(), BLOCK_SIZE, kv_heads, size, seed=2, dtype=dtype)
    assert_chains(randn(len(lengths), width, heads, size, dtype=dtype), kv, table, lengths, trees)


def test_codes_of_eight_bits_have_the_bits_of_what_they_mean() -> None:
    table, generator = shuffled(LENGTHS[:1], WIDTH), torch.Generator().manual_seed(3)
    shape = (2, 1 + table.numel(), BLOCK_SIZE, 1, 16)
    codes = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    exponents = torch.randint(-7, 0, shape[:-1], generator=generator, dtype=torch.int8)
    kind = torch.float32 if INTERPRETED else torch.bfloat16
    q, span = randn(1, WIDTH, 2, 16, dtype=kind), grown(TREES[:1], table, LENGTHS[:1])
    got = kernel.attend_span(q, codes.to(DEVICE), span, None, exponents.to(DEVICE))
    assert torch.equal(got, kernel.attend_span(q, widened(codes, exponents, kind).to(DEVICE), span))


def test_a_node_without_a_place_spoils_no_other() -> None:
    """The table ends behind the fifth row: nodes in it are as in a table that goes on."""
    length, parents = 2 * BLOCK_SIZE - 5, [0, 0, 1, 2, 4, 5]
    table = shuffled((length,), WIDTH)
    kv = randn(2, 1 + table.numel(), BLOCK_SIZE, 1, 16, seed=2)
    q = randn(1, WIDTH, 2, 16)
    whole = kernel.attend_span(q, kv, grown([parents], table, (length,)))
    kv[:, table[0, 2:].long()] = float("nan")
    short = kernel.attend_span(q, kv, grown([parents], table[:, :2].contiguous(), (length,)))
    assert torch.equal(short[0, :5], whole[0, :5])
