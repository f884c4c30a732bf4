"""Attention that makes its heads of a product has the bits of store_qkv and attention; no other memory counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from services.common.kernels.linear import Normed, linear
from services.common.kernels.span_attention.hopper.made import attend_mixed, serves
from services.common.kernels.span_attention.projected import attend_projected
from tests.gpu import product_rows
from tests.gpu.product_rows import EPS, SIZE, WIDTH
from tests.kernels.gpu.devices import INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
Rows = partial(product_rows.Rows, attend_mixed)


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
