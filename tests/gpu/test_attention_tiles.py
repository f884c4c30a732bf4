"""Attention in CUDA C++ has the bits of the program in Triton, however it is cut; no other memory counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, Span, kernel, plan_context, plan_span
from services.common.kernels.span_attention.hopper import TileCut, tiles_of
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
HEADS, GROUP = 4, 4
LENGTHS = [0, 1, 63, 500, 1008, 1016, 2040, 4090, 7160, 8190]
"""Lengths next to ends of tiles; in some tiles rows have splits of two sizes."""
CUTS = [TileCut(programs) for programs in (1, 2, 3, 4, 5, 16)]
NARROW_CUTS = [TileCut(1, 2), TileCut(1, 1, 2), TileCut(1, spread=2)]
"""Of narrow heads: two warpgroups with rows of one item, or with items of their own, and two CTAs with columns each."""


class Attention:
    """Random K/V and queries; positions that no row sees are NaN."""

    def __init__(self, lengths: list[int], width: int, size: int, block: int, valid: list[int] | None = None) -> None:
        columns = -(-(max(lengths) + width) // block)
        order = torch.randperm(len(lengths) * columns, generator=torch.Generator().manual_seed(1)) + 1
        self.kv = randn(2, 1 + len(order), block, HEADS, size, dtype=torch.bfloat16)
        self.q = 2 * randn(len(lengths), width, GROUP * HEADS, size, seed=2, dtype=torch.bfloat16)
        table = order.view(len(lengths), columns).to(torch.int32)
        known = [length + (valid[row] if valid else width) for row, length in enumerate(lengths)]
        for row, count in enumerate(known):
            places = torch.arange(columns * block)
            hidden = places >= count
            self.kv[:, table[row].long()[places[hidden] // block], places[hidden] % block] = float("nan")
            table[row, -(-count // block) :] = 0
        self.kv[:, 0] = float("nan")
        self.valid = None if valid is None else torch.tensor(valid, device=DEVICE)
        self.span: Span = plan_span(table.to(DEVICE), torch.tensor(lengths, device=DEVICE), width, block, self.valid)

    def __call__(self, monkeypatch: pytest.MonkeyPatch, cut: TileCut | None) -> Tensor:
        monkeypatch.setattr(kernel, "tiles_of", lambda *_: cut)
        found = kernel.attend_span(self.q, self.kv, self.span)
        if self.valid is None:
            return found
        rows_BW = torch.arange(found.shape[1], device=DEVICE) < self.valid[:, None]
        return torch.where(rows_BW[..., None], found, 0)


@pytest.mark.parametrize("size", [128, 256])
@pytest.mark.parametrize("width", [1, 5, 16, 40])
def test_every_cut_has_the_bits_of_triton(width: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention(LENGTHS, width, size, 16)
    expected = attention(monkeypatch, None)
    assert not expected.isnan().any()
    for cut in CUTS + NARROW_CUTS if size == 128 else CUTS:
        assert torch.equal(attention(monkeypatch, cut), expected), cut


def test_items_of_many_sequences_are_taken_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take one item after another, some of them one less; a single item leaves a warpgroup without one."""
    for lengths in ([37 * row % 700 for row in range(150)], [3 * row % 700 for row in range(300)], [40]):
        attention = Attention(lengths, 8, 128, 16)
        expected = attention(monkeypatch, None)
        for cut in (TileCut(1), *NARROW_CUTS):
            assert torch.equal(attention(monkeypatch, cut), expected), (len(lengths), cut)


@pytest.mark.parametrize("width", [3, 8, 9, 16])
def test_the_order_of_sequences_changes_no_bit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the longest on, as rounds sort them, and any other way."""
    lengths = [53 * row % 700 for row in range(70)]
    attention, blocks = Attention(lengths, width, 128, 16), Blocks(lengths, width)
    expected, expected_blocks = attention(monkeypatch, None), blocks(monkeypatch, None)
    plain, in_block = attention.span, blocks.span
    for rows in (sorted(range(70), key=lambda row: -lengths[row]), list(range(70))[::-1]):
        order = torch.tensor([[row, lengths[row]] for row in rows], dtype=torch.int32, device=DEVICE)
        attention.span, blocks.span = replace(plain, ranks_B2=order), replace(in_block, ranks_B2=order)
        for cut in (TileCut(1), TileCut(1, 1, 2), TileCut(2), TileCut(1, spread=2)):
            assert torch.equal(attention(monkeypatch, cut), expected), cut
            assert torch.equal(blocks(monkeypatch, cut), expected_blocks), cut


@pytest.mark.parametrize("block", [8, 16, 32, 64, 128])
def test_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention([300, 77, 128], 16, 128, block)
    expected = attention(monkeypatch, None)
    for cut in (TileCut(1), TileCut(2), *NARROW_CUTS):
        assert torch.equal(attention(monkeypatch, cut), expected), cut


@pytest.mark.parametrize("size", [128, 256])
def test_prompts_whose_last_rows_are_padding(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention([0, 2048, 512], 512, size, 16, valid=[512, 3, 200])
    expected = attention(monkeypatch, None)
    for cut in (TileCut(1), *NARROW_CUTS) if size == 128 else (TileCut(1),):
        assert torch.equal(attention(monkeypatch, cut), expected), cut


def test_its_own_cut_serves_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them falls back to Triton unseen."""
    for size, batch, width in ((128, 6, 16), (128, 8, 16), (128, 34, 8), (256, 1, 16), (256, 8, 16)):
        attention = Attention((LENGTHS * 4)[:batch], width, size, 16)
        assert tiles_of(attention.q, attention.kv, attention.span) is not None, (size, batch, width)
        short = replace(attention.span, short=True)
        found = kernel.attend_span(attention.q, attention.kv, short)
        assert torch.equal(found, attention(monkeypatch, None)), (size, batch, width)
        monkeypatch.undo()


class Blocks:
    """A drafter's blocks, whose keys and values lie in tensors of their own; what is in no context is NaN."""

    def __init__(self, lengths: list[int], width: int, block: int = 16, heads: int = HEADS) -> None:
        columns = max(-(-max(lengths) // block), 1)
        order = torch.randperm(len(lengths) * columns, generator=torch.Generator().manual_seed(3)) + 1
        table = order.view(len(lengths), columns).to(torch.int32)
        self.kv = randn(2, 1 + len(order), block, heads, 128, seed=4, dtype=torch.bfloat16)
        for row, length in enumerate(lengths):
            places = torch.arange(length, columns * block)
            self.kv[:, table[row].long()[places // block], places % block] = float("nan")
            table[row, -(-length // block) :] = 0
        self.kv[:, 0] = float("nan")
        self.q = 2 * randn(len(lengths), width, GROUP * heads, 128, seed=5, dtype=torch.bfloat16)
        self.own = randn(2, len(lengths), width, heads, 128, seed=6, dtype=torch.bfloat16)
        self.span = plan_context(table.to(DEVICE), torch.tensor(lengths, device=DEVICE), width, block)

    def __call__(self, monkeypatch: pytest.MonkeyPatch, cut: TileCut | None) -> Tensor:
        monkeypatch.setattr(kernel, "tiles_of", lambda *_: cut)
        keys, values = self.own
        return kernel.attend_block(self.q, keys, values, self.kv, self.span)


@pytest.mark.parametrize("width", [1, 4, 7, 16])
def test_blocks_have_the_bits_of_triton(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind contexts of all lengths within some tiles, so that a block lies in one tile or in two."""
    for lengths in (list(range(201)), LENGTHS):
        blocks = Blocks(lengths, width)
        expected = blocks(monkeypatch, None)
        assert not expected.isnan().any()
        for cut in (*CUTS, TileCut(1, 1, 2), TileCut(1, spread=2)):
            assert torch.equal(blocks(monkeypatch, cut), expected), cut


@pytest.mark.parametrize("block", [8, 64, 128])
def test_blocks_behind_pages_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks([0, 300, 77, 128, 1020], 6, block)
    expected = blocks(monkeypatch, None)
    for cut in (TileCut(1), TileCut(2), TileCut(1, 1, 2), TileCut(1, spread=2)):
        assert torch.equal(blocks(monkeypatch, cut), expected), cut


def test_a_block_past_the_table_reads_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks([128], 4)
    blocks.span = replace(blocks.span, lengths_B=blocks.span.lengths_B + 64, reach_B=blocks.span.reach_B + 64)
    expected = blocks(monkeypatch, None)
    assert not expected.isnan().any()
    for cut in (TileCut(1), TileCut(2), TileCut(1, 1, 2), TileCut(1, spread=2)):
        assert torch.equal(blocks(monkeypatch, cut), expected), cut


def test_open_blocks_alone_are_served() -> None:
    """Of many sequences; what hides positions stays with Triton."""
    blocks = Blocks([37 * row % 700 for row in range(34)], 4)
    own = (blocks.own[0], blocks.own[1])
    assert tiles_of(blocks.q, blocks.kv, blocks.span, own) == TileCut(1, 1, 2)
    for mask in (Mask(window=64), Mask(causal=True)):
        assert tiles_of(blocks.q, blocks.kv, replace(blocks.span, mask=mask), own) is None
