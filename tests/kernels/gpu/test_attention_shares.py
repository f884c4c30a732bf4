"""Splits of a row may be shared among any number of programs: no bit of the row changes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, kernel, plan_context, plan_span, seen_through
from services.common.kernels.span_attention.cut import Cut
from services.common.kernels.span_attention.splits import MOST_SPLITS, TILE_TOKENS, split_tokens
from tests.kernels.gpu.devices import DEVICE, DTYPES, randn

WIDTH, GROUP, SIZE, BLOCK_SIZE = 5, 3, 32, 4
FULL = MOST_SPLITS * TILE_TOKENS
"""Positions of which every split has one tile."""
LENGTHS = [3 * TILE_TOKENS - 1, FULL - 2, 2 * FULL + TILE_TOKENS, 5 * FULL - WIDTH]
"""The second sequence's rows have splits of two sizes."""
PROGRAMS = (1, 2, 3, MOST_SPLITS)


@cache
def sequences(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys and values in blocks, those of the rows themselves, and the table."""
    columns = -(-(max(LENGTHS) + WIDTH) // BLOCK_SIZE)
    order = torch.randperm(len(LENGTHS) * columns, generator=torch.Generator().manual_seed(1)) + 1
    table = order.view(len(LENGTHS), columns).to(torch.int32)
    q = 2 * randn(len(LENGTHS), WIDTH, GROUP, SIZE, dtype=dtype)
    kv = randn(2, 1 + len(order), BLOCK_SIZE, 1, SIZE, seed=2, dtype=dtype)
    return q, kv, randn(2, len(LENGTHS), WIDTH, 1, SIZE, seed=3, dtype=dtype), table.to(DEVICE)


def attended(in_block: bool, mask: Mask, dtype: torch.dtype) -> Tensor:
    """Let rows behind every sequence attend."""
    q, kv, own, table = sequences(dtype)
    lengths = torch.tensor(LENGTHS, device=DEVICE)
    if in_block:
        keys, values = own
        block = seen_through(plan_context(table, lengths, WIDTH, BLOCK_SIZE), mask)
        return kernel.attend_block(q, keys, values, kv, block)
    return kernel.attend_span(q, kv, plan_span(table, lengths, WIDTH, BLOCK_SIZE, mask=mask))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("in_block", "window"), [(False, 0), (False, 70), (True, 0), (True, 70)])
def test_any_number_of_programs_may_share_the_splits(
    in_block: bool, window: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert split_tokens(LENGTHS[1] + 1) < split_tokens(LENGTHS[1] + WIDTH)
    found = []
    for programs in PROGRAMS:
        monkeypatch.setattr(kernel, "tiles_of", lambda *_: None)
        monkeypatch.setattr(kernel, "cut_span", lambda *_, programs=programs: Cut(16, programs))
        found.append(attended(in_block, Mask(window), dtype))
    assert found[0].isfinite().all()
    for programs, other in zip(PROGRAMS[1:], found[1:], strict=True):
        assert torch.equal(other, found[0]), programs
