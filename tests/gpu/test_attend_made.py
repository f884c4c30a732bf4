"""Attention that makes its heads of a product has the bits of store_qkv and attention; no other memory counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import Normed, linear
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Span, plan_span
from services.common.kernels.span_attention.hopper.made import attend_mixed, serves
from services.common.kernels.span_attention.kernel import attend_span
from services.common.kernels.span_attention.projected import attend_projected
from services.common.kernels.store_qkv.kernel import store_qkv
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SIZE, WIDTH, EPS = 128, 2560, 1e-6


class Rows:
    """A product's rows of several sequences, and paged K/V; positions that no row sees before the span are NaN."""

    def __init__(
        self, lengths: Sequence[int], width: int, group: int = 4, kv_heads: int = 8, block: int = 16, columns: int = 0
    ) -> None:
        count, heads = len(lengths), (group + 2) * kv_heads
        columns = columns or (max(lengths) + width) // block + 1
        order = torch.randperm(count * columns, generator=torch.Generator().manual_seed(count))
        table = order.view(count, columns).to(torch.int32) + 1
        self.kv = randn(2, count * columns + 1, block, kv_heads, SIZE, seed=1, dtype=torch.bfloat16)
        seen = torch.zeros(count * columns + 1, block, dtype=torch.bool)
        for own, length in zip(table.long(), lengths, strict=True):
            places = torch.arange(min(length, columns * block))
            seen[own[places // block], places % block] = True
        self.kv[:, ~seen.to(DEVICE)] = float("nan")
        self.table, self.lengths, self.width, self.block = table.to(DEVICE), lengths, width, block
        self.span = self.plan()
        self.mixed = Normed(
            3 * randn(count * width, heads * SIZE, seed=2, dtype=torch.bfloat16),
            torch.randint(1 << 35, 1 << 37, (count * width,), device=DEVICE),
        )
        self.norm = 1 + randn(heads - kv_heads, SIZE, seed=3, dtype=torch.bfloat16) / 5
        self.bias = randn(heads * SIZE, seed=4, dtype=torch.bfloat16)
        angles = 3 * randn(count * width, 1, SIZE // 2, seed=5)
        self.rotation = Rotation(torch.cat([angles.cos()] * 2, -1), torch.cat((-angles.sin(), angles.sin()), -1))

    def plan(self) -> Span:
        """Sequences come ranked by length, as the launch that seats a round ranks them."""
        lengths_B = torch.tensor(self.lengths, device=DEVICE)
        ranks = sorted(((number, length) for number, length in enumerate(self.lengths)), key=lambda pair: -pair[1])
        ranks_B2 = torch.tensor(ranks, dtype=torch.int32, device=DEVICE)
        return replace(plan_span(self.table, lengths_B, self.width, self.block), ranks_B2=ranks_B2)

    def results(self, norm: Tensor | None, bias: Tensor | None, offset: float) -> tuple[list[Tensor], list[Tensor]]:
        """Return output and K/V by two kernels, and by the one."""
        apart, made = self.kv.clone(), self.kv.clone()
        q_THD = store_qkv(self.mixed, norm, self.rotation, apart, self.span.slots_T, EPS, bias, offset, WIDTH)
        shape = self.span.positions_BW.shape
        expected = attend_span(q_THD.unflatten(0, shape), apart, self.span).flatten(0, 1)
        found = attend_mixed(self.mixed, norm, self.rotation, made, self.span, EPS, bias, offset, WIDTH)
        return [expected, apart], [found, made]

    def check(self, norm: Tensor | None, bias: Tensor | None = None, offset: float = 0.0, pad: int = 0) -> None:
        """Block 0 is where rows without a place go, in any order, so it may differ where there is a `pad`."""
        expected, found = self.results(norm, bias, offset)
        expected[1], found[1] = expected[1][:, pad:], found[1][:, pad:]
        for one, other in zip(expected, found, strict=True):
            assert torch.equal(one.view(torch.int16), other.view(torch.int16)), self.lengths
        assert not found[0].isnan().any()


@pytest.mark.parametrize("width", range(1, 9))
def test_short_contexts(width: int) -> None:
    """Of every length next to ends of tiles, own rows in one tile or two."""
    for first in (0, 50, 110, 170, 300):
        rows = Rows([first + number for number in range(40)], width)
        rows.check(rows.norm if first % 100 else None, rows.bias if first % 3 else None, float(first == 50))


@pytest.mark.parametrize("first", [1000, 1016, 2030, 5000])
@pytest.mark.parametrize("width", [4, 8])
def test_longer_contexts(first: int, width: int) -> None:
    """Whose splits have sizes that differ."""
    rows = Rows([first + number for number in range(36)], width)
    rows.check(rows.norm, rows.bias)


@pytest.mark.parametrize(("group", "kv_heads", "width"), [(2, 8, 8), (8, 8, 4), (5, 8, 6), (1, 16, 8), (7, 4, 4)])
def test_heads_in_groups_of_any_size(group: int, kv_heads: int, width: int) -> None:
    rows = Rows([number * 9 for number in range(70)], width, group, kv_heads)
    rows.check(rows.norm, rows.bias)


@pytest.mark.parametrize("block", [8, 32, 64, 128])
def test_blocks_of_any_size(block: int) -> None:
    rows = Rows([number * 11 for number in range(40)], 6, block=block)
    rows.check(rows.norm)


@pytest.mark.parametrize("count", [17, 33, 64, 128])
def test_any_number_of_sequences(count: int) -> None:
    """Some CTAs have one item, some several."""
    rows = Rows([(number * 37) % 900 for number in range(count)], 6)
    rows.check(rows.norm)


def test_rows_without_a_stream_to_divide_by() -> None:
    rows = Rows([number * 5 for number in range(40)], 6)
    rows.mixed = Normed(rows.mixed.rows_TD)
    rows.check(rows.norm)


def test_sequences_at_the_end_of_their_room() -> None:
    """Rows without a place of their own store into the block that nobody reads."""
    rows = Rows([128 - number % 12 for number in range(40)], 8, columns=8)
    rows.check(rows.norm, pad=1)


def test_a_round_is_served_behind_its_product() -> None:
    """None of them falls back unseen."""
    rows = Rows([500 + number for number in range(64)], 6)
    rows.span = replace(rows.span, short=True)
    weight_FD = randn(48 * SIZE, WIDTH, seed=9, dtype=torch.bfloat16) / 50
    normed = Normed(randn(64 * 6, WIDTH, seed=8, dtype=torch.bfloat16), rows.mixed.squares_T)
    assert serves(normed, weight_FD, rows.norm, rows.rotation, rows.kv, rows.span, None)
    found = attend_projected(normed, weight_FD, rows.norm, rows.rotation, rows.kv.clone(), rows.span, EPS)
    rows.mixed = Normed(linear(normed.rows_TD, weight_FD), normed.squares_T)
    assert found is not None and torch.equal(found, rows.results(rows.norm, None, 0.0)[0][0])
