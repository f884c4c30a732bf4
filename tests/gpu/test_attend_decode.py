"""Attention of a row each of many sequences has the bits of store_qkv and attention; no other memory counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from services.common.kernels.linear import Normed, linear
from services.common.kernels.span_attention.decode.kernel import attend_mixed, serves
from services.common.kernels.span_attention.projected import attend_projected
from tests.gpu import product_rows
from tests.gpu.product_rows import EPS, SIZE, WIDTH
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
Rows = partial(product_rows.Rows, attend_mixed)


@pytest.mark.parametrize("first", [0, 40, 64, 100, 290, 500])
def test_short_contexts(first: int) -> None:
    """Of every length next to ends of tiles, in a first one that has no other before it, too."""
    rows = Rows([first + number for number in range(70)])
    rows.check(rows.norm if first % 100 else None, rows.bias if first else None, float(first == 40))


@pytest.mark.parametrize("first", [1000, 2030, 5000])
def test_longer_contexts(first: int) -> None:
    """Whose splits have sizes that differ."""
    rows = Rows([first + number for number in range(40)])
    rows.check(rows.norm, rows.bias)


@pytest.mark.parametrize(("group", "kv_heads"), [(1, 16), (2, 8), (5, 8), (7, 4), (8, 8)])
def test_heads_in_groups_of_any_size(group: int, kv_heads: int) -> None:
    rows = Rows([number * 9 for number in range(70)], group=group, kv_heads=kv_heads)
    rows.check(rows.norm, rows.bias)


@pytest.mark.parametrize("block", [8, 32, 64, 128])
def test_blocks_of_any_size(block: int) -> None:
    rows = Rows([number * 11 for number in range(40)], block=block)
    rows.check(rows.norm)


@pytest.mark.parametrize("count", [1, 17, 34, 64, 128, 200])
def test_any_number_of_sequences(count: int) -> None:
    """All run at once, or some wait for others."""
    rows = Rows([(number * 37) % 900 for number in range(count)])
    rows.check(rows.norm)


def test_rows_without_a_stream_to_divide_by() -> None:
    rows = Rows([number * 5 for number in range(40)])
    rows.mixed = Normed(rows.mixed.rows_TD)
    rows.check(rows.norm)


def test_sequences_at_the_end_of_their_room() -> None:
    """Rows without a place of their own store into the block that nobody reads."""
    rows = Rows([130 - number % 12 for number in range(40)], columns=8)
    rows.check(rows.norm, pad=1)


@pytest.mark.parametrize("count", [48, 64, 128])
def test_a_round_is_served_behind_its_product(count: int) -> None:
    """None of them falls back unseen; products let the kernel begin before they end."""
    rows = Rows([500 + number for number in range(count)])
    weight_FD = randn(48 * SIZE, WIDTH, seed=9, dtype=torch.bfloat16) / 50
    normed = Normed(randn(count, WIDTH, seed=8, dtype=torch.bfloat16), rows.mixed.squares_T)
    assert serves(normed, weight_FD, rows.norm, rows.rotation, rows.kv, rows.span, None)
    found = attend_projected(normed, weight_FD, rows.norm, rows.rotation, rows.kv.clone(), rows.span, EPS)
    rows.mixed = Normed(linear(normed.rows_TD, weight_FD), normed.squares_T)
    assert found is not None and torch.equal(found, rows.results(rows.norm, None, 0.0)[0][0])


def test_few_sequences_are_left_to_others() -> None:
    rows = Rows([500] * 16)
    weight_FD = randn(48 * SIZE, WIDTH, seed=9, dtype=torch.bfloat16)
    normed = Normed(randn(16, WIDTH, seed=8, dtype=torch.bfloat16), rows.mixed.squares_T)
    assert not serves(normed, weight_FD, rows.norm, rows.rotation, rows.kv, rows.span, None)
    assert not serves(normed, weight_FD, rows.norm, rows.rotation, rows.kv, replace(rows.span, ranks_B2=None), None)
