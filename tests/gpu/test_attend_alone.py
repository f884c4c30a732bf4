"""The kernel for a row that is alone has the bits of store_qkv, attention and merge; no other memory counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.head_gates.kernel import gate_heads
from services.common.kernels.linear import Normed, linear
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Mask, plan_span
from services.common.kernels.span_attention.alone.kernel import attend_mixed, serves
from services.common.kernels.span_attention.kernel import attend_span
from services.common.kernels.span_attention.projected import attend_projected
from services.common.kernels.store_qkv.kernel import store_qkv
from tests.gpu.product_rows import EPS, SIZE, WIDTH, heads_of
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
EDGES = [511, 512, 1008, 1022, 1023, 1024, 1087, 2047, 2048, 4095, 5000, 8191, 8192, 16000, 40_000]
"""Lengths next to ends of tiles and of splits."""


class Row:
    """A product's row, and paged K/V; positions that the row does not see are NaN."""

    def __init__(
        self, length: int, group: int, kv_heads: int, block: int = 16, columns: int = 0, seed: int = 0, window: int = 0
    ) -> None:
        columns = columns or length // block + 2
        heads = (group + 2) * kv_heads
        table = torch.randperm(columns, generator=torch.Generator().manual_seed(seed)).to(torch.int32)[None] + 1
        self.kv = randn(2, columns + 1, block, kv_heads, SIZE, seed=seed, dtype=torch.bfloat16)
        seen = torch.zeros(columns + 1, block, dtype=torch.bool)
        places = torch.arange(max(0, length + 1 - window) if window else 0, min(length, columns * block))
        seen[table[0].long()[places // block], places % block] = True
        self.kv[:, ~seen.to(DEVICE)] = float("nan")
        self.span = plan_span(table.to(DEVICE), torch.tensor([length], device=DEVICE), 1, block, mask=Mask(window))
        self.mixed = Normed(
            3 * randn(1, heads * SIZE, seed=seed + 1, dtype=torch.bfloat16),
            torch.tensor([int(1.3 * WIDTH * 2**24)], device=DEVICE),
        )
        self.norm = 1 + randn(heads - kv_heads, SIZE, seed=seed + 2, dtype=torch.bfloat16) / 5
        self.bias = randn(heads * SIZE, seed=seed + 3, dtype=torch.bfloat16)
        angles = 3 * randn(1, 1, SIZE // 2, seed=seed + 4)
        self.rotation = Rotation(torch.cat([angles.cos()] * 2, -1), torch.cat((-angles.sin(), angles.sin()), -1))

    def results(
        self, norm: Tensor | None, bias: Tensor | None, offset: float = 0.0
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return output and K/V by three kernels, and by the one."""
        apart, alone = self.kv.clone(), self.kv.clone()
        q_THD = store_qkv(self.mixed, norm, self.rotation, apart, self.span.slots_T, EPS, bias, offset, WIDTH)
        expected = attend_span(q_THD[None], apart, self.span).flatten(0, 1)
        heads = heads_of(self.mixed, norm, self.rotation, alone, self.span, bias, offset)
        found = attend_mixed(heads, self.span)
        return [expected, apart], [found, alone]

    def check(self, norm: Tensor | None, bias: Tensor | None, offset: float = 0.0) -> None:
        expected, found = self.results(norm, bias, offset)
        for one, other in zip(expected, found, strict=True):
            assert torch.equal(one.view(torch.int16), other.view(torch.int16)), self.span.lengths_B
        assert not found[0].isnan().any()


@pytest.mark.parametrize("group", [4, 8, 2])
def test_short_contexts(group: int) -> None:
    for length in range(301) if group == 4 else range(0, 301, 11):
        row = Row(length, group, 8, seed=length)
        row.check(row.norm if length % 3 else None, None if length % 4 else row.bias, float(length % 5 == 0))


@pytest.mark.parametrize("length", EDGES)
@pytest.mark.parametrize(("group", "kv_heads"), [(4, 8), (8, 4), (2, 16), (1, 8)])
def test_longer_contexts(length: int, group: int, kv_heads: int) -> None:
    row = Row(length, group, kv_heads)
    row.check(row.norm, row.bias)


@pytest.mark.parametrize("window", [1, 24, 64, 512, 961])
@pytest.mark.parametrize("group", [6, 8])
def test_windows(window: int, group: int) -> None:
    """What lies before them is NaN; they begin at every place of a tile, and far behind short contexts."""
    for length in (*range(0, 40, 7), *range(500, 580, 3), 1023, 1024, 1500, 5000, 20_011):
        row = Row(length, group, 8, seed=length, window=window)
        row.check(row.norm if length % 3 else None, None, float(length % 5 == 0))


def test_what_lies_before_a_window_may_have_no_block() -> None:
    """Its places went to others: the table names the block of padding there, and that is NaN."""
    row = Row(1500, 8, 8, window=512)
    table_BN = row.span.block_table_BN.clone()
    table_BN[:, : (1500 + 1 - 512) // 16] = 0
    row.kv[:, 0] = float("nan")
    row.span = replace(row.span, block_table_BN=table_BN)
    row.check(row.norm, None)


@pytest.mark.parametrize("window", [0, 512])
@pytest.mark.parametrize("group", [2, 6, 8])
def test_gates_of_heads_have_the_bits_of_a_launch_of_their_own(window: int, group: int) -> None:
    """Large, small, both zeros, infinite and NaN; behind a row that waits for its norm, and one that does not."""
    for length in (0, 63, 500, 1500):
        row = Row(length, group, 8, seed=length, window=window)
        gates_TH = 4 * randn(1, group * 8, seed=length, dtype=torch.bfloat16)
        odd = [0.0, -0.0, 90.0, -90.0, 1e-30, -1e-30, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]
        gates_TH[0, 2:13] = torch.tensor(odd, dtype=torch.bfloat16, device=DEVICE)
        for squares_T in (row.mixed.squares_T, None):
            row.mixed = Normed(row.mixed.rows_TD, squares_T)
            (expected, _), _ = row.results(row.norm, None)
            before = Normed(torch.empty(1, WIDTH, device=DEVICE), squares_T)
            gate_heads(expected, gates_TH, before, EPS)
            heads = heads_of(row.mixed, row.norm, row.rotation, row.kv.clone(), row.span, None, 0.0)
            found = attend_mixed(heads, row.span, gates_TH)
            there = ~expected.isnan()
            assert torch.equal(there, ~found.isnan())
            assert torch.equal(expected[there].view(torch.int16), found[there].view(torch.int16)), (length, squares_T)


@pytest.mark.parametrize("block", [8, 16, 32, 64, 128])
def test_blocks_of_any_size(block: int) -> None:
    for length in (0, 7, 63, 64, 300, 1100):
        row = Row(length, 4, 8, block)
        row.check(row.norm, None)


def test_rows_without_a_stream_to_divide_by() -> None:
    row = Row(77, 4, 8)
    row.mixed = Normed(row.mixed.rows_TD)
    row.check(row.norm, None)


def test_padding() -> None:
    """A sequence without blocks, and rows that have no slot of their own."""
    for length in (0, 40):
        row = Row(length, 4, 8)
        row.kv[:] = randn(*row.kv.shape, dtype=torch.bfloat16)
        row.span = plan_span(torch.zeros_like(row.span.block_table_BN), row.span.lengths_B, 1, 16)
        row.check(row.norm, None)
    for length in (0, 40, 700, 1500):
        row = Row(length, 4, 8)
        row.kv[:] = randn(*row.kv.shape, dtype=torch.bfloat16)
        none = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        row.span = plan_span(row.span.block_table_BN, row.span.lengths_B, 1, 16, none)
        row.check(row.norm, None)
        beyond = Row(length, 4, 8, columns=max(length // 16, 1))
        beyond.check(beyond.norm, None)


def test_a_round_is_served_behind_its_product() -> None:
    """None of them falls back unseen."""
    row = Row(500, 4, 8)
    weight_FD = randn(48 * SIZE, WIDTH, seed=9, dtype=torch.bfloat16) / 50
    normed = Normed(randn(1, WIDTH, seed=8, dtype=torch.bfloat16), row.mixed.squares_T)
    span = replace(row.span, short=True)
    assert serves(normed, weight_FD, len(weight_FD), row.norm, row.rotation, row.kv, span, None)
    found = attend_projected(normed, weight_FD, row.norm, row.rotation, row.kv.clone(), span, EPS)
    row.mixed = Normed(linear(normed.rows_TD, weight_FD), normed.squares_T)
    assert found is not None and torch.equal(found, row.results(row.norm, None)[0][0])
    assert attend_projected(normed, weight_FD, row.norm, row.rotation, row.kv, row.span, EPS) is None
