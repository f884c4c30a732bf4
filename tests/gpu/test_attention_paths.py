"""Trees in CUDA C++ have the bits of the program in Triton, and a tree that is a chain has a chain's."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, Span, kernel, plan_span
from services.common.kernels.span_attention.hopper import TileCut, tree_tiles_of
from services.common.kernels.span_attention.tree import kernel as tree
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
HEADS = 4
CUTS = {128: TileCut(1, spread=2), 64: TileCut(1)}
"""By the numbers of a head."""
LENGTHS = [0, 1, 15, 48, 50, 63, 64, 500, 959, 1000, 1008, 1009, 1016, 1023, 1024, 2030]
"""Paths within a tile, over its end, and over the end of a split; splits of two sizes; long splits."""


def grown(parents: list[int]) -> tuple[list[int], list[list[int]]]:
    """Return the bits of each node's ancestors, and its lineage; what stands behind a node in it is no row."""
    paths = [[0]]
    for row, parent in enumerate(parents, start=1):
        paths.append([*paths[parent], row])
    return [sum(1 << row for row in path) for path in paths], [path + [-1] * (len(paths) - len(path)) for path in paths]


class Trees:
    """Random trees, K/V and queries; the pad block and what lies behind a sequence's rows are NaN."""

    def __init__(
        self, lengths: list[int], trees: list[list[int]], group: int = 4, block: int = 16, held: int = 0,
        size: int = 128,
    ) -> None:  # fmt: skip
        """The table knows `held` rows of each sequence, or all of them."""
        batch, self.width = len(lengths), len(trees[0]) + 1
        columns = -(-(max(lengths) + self.width) // block)
        order = torch.randperm(batch * columns, generator=torch.Generator().manual_seed(1)) + 1
        table = order.view(batch, columns).to(torch.int32)
        self.kv = randn(2, 1 + len(order), block, HEADS, size, dtype=torch.bfloat16)
        for row, length in enumerate(lengths):
            behind = torch.arange(length + (held or self.width), columns * block)
            self.kv[:, table[row].long()[behind // block], behind % block] = float("nan")
            table[row, -(-(length + (held or self.width)) // block) :] = 0
        self.kv[:, 0] = float("nan")
        self.q = 2 * randn(batch, self.width, group * HEADS, size, seed=2, dtype=torch.bfloat16)
        bits, lineage = zip(*map(grown, trees), strict=True)
        depths = [[each.bit_count() - 1 for each in row] for row in bits]
        mask = Mask(
            ancestors_BW=torch.tensor(bits, device=DEVICE),
            lineage_BWW=torch.tensor(lineage, dtype=torch.int32, device=DEVICE),
            depths_BW=torch.tensor(depths, device=DEVICE),
        )
        self.places = table.to(DEVICE), torch.tensor(lengths, device=DEVICE), self.width, block
        self.span: Span = plan_span(*self.places, mask=mask)

    def __call__(self, monkeypatch: pytest.MonkeyPatch, cut: TileCut | None) -> Tensor:
        monkeypatch.setattr(tree, "tree_tiles_of", lambda *_: cut)
        return kernel.attend_span(self.q, self.kv, self.span)


def drawn(count: int, width: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(max(0, row - 4), row + 1) for row in range(width - 1)] for _ in range(count)]


@pytest.mark.parametrize(
    ("width", "group", "size"),
    [(*shape, 128) for shape in ((16, 4), (8, 4), (2, 4), (12, 5), (8, 8), (20, 3), (63, 1), (5, 2))]
    + [(*shape, 64) for shape in ((16, 3), (16, 4), (8, 3), (2, 4), (12, 5), (8, 8), (17, 3), (17, 1), (1, 3))],
)
def test_trees_have_the_bits_of_triton(width: int, group: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        trees = Trees(LENGTHS, drawn(len(LENGTHS), width, seed), group, size=size)
        expected = trees(monkeypatch, None)
        assert not expected.isnan().any()
        assert torch.equal(trees(monkeypatch, CUTS[size]), expected), seed


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("block", [8, 32, 64, 128])
def test_pages_of_any_size(block: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = Trees(LENGTHS, drawn(len(LENGTHS), 16, 7), block=block, size=size)
    assert torch.equal(trees(monkeypatch, CUTS[size]), trees(monkeypatch, None))


@pytest.mark.parametrize("size", CUTS)
def test_a_tree_that_is_a_chain_has_its_bits(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = Trees(LENGTHS, [list(range(15))] * len(LENGTHS), size=size)
    chains = kernel.attend_span(trees.q, trees.kv, plan_span(*trees.places))
    assert torch.equal(trees(monkeypatch, CUTS[size]), chains)


@pytest.mark.parametrize("size", CUTS)
def test_nodes_without_a_place_spoil_no_other(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fifth node has the last place of a block, and no block follows."""
    lengths = [11, 59, 507]
    trees = Trees(lengths, drawn(3, 16, 9), held=5, size=size)
    assert torch.equal(trees(monkeypatch, CUTS[size])[:, :5], trees(monkeypatch, None)[:, :5])


def test_short_rounds_of_eight_go_this_way() -> None:
    trees = Trees(LENGTHS[:8], drawn(8, 16, 1))
    assert tree_tiles_of(trees.q, trees.kv, trees.span) is None
    assert tree_tiles_of(trees.q, trees.kv, replace(trees.span, short=True)) == TileCut(1, spread=2)


def test_trees_of_narrow_heads_go_this_way() -> None:
    trees = Trees(LENGTHS, drawn(len(LENGTHS), 16, 1), size=64)
    assert tree_tiles_of(trees.q, trees.kv, trees.span) is None
    assert tree_tiles_of(trees.q, trees.kv, replace(trees.span, short=True)) == TileCut(1)
    wider = Trees(LENGTHS, drawn(len(LENGTHS), 18, 1), group=3, size=64)
    assert tree_tiles_of(wider.q, wider.kv, replace(wider.span, short=True)) is None
