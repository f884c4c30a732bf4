"""Span attention of one to many sequences at once, for which it is cut otherwise; too much for the interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, kernel, plan_context, plan_span, reference, seen_through
from services.common.kernels.span_attention.cut import Cut, cut_span
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, close, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
BLOCK_SIZE, COLUMNS, KV_HEADS = 16, 12, 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("batch", "width", "group", "size"),
    [
        *[(1, 8, 4, 128), (1, 16, 4, 128), (5, 1, 4, 128), (8, 8, 4, 128), (8, 16, 4, 128), (16, 4, 4, 128)],
        *[(17, 8, 4, 128), (35, 8, 4, 128), (35, 2, 2, 64), (17, 16, 4, 128), (35, 1, 4, 128)],
        *[(1, 6, 4, 128), (8, 12, 4, 128), (35, 6, 4, 128)],
    ],
)
def test_every_cut(batch: int, width: int, group: int, size: int, dtype: torch.dtype) -> None:
    """Heads of a GPU's size; lengths of all kinds, 0 among them."""
    lengths = torch.tensor([165, *(37 * row % 171 for row in range(batch - 1))])
    order = torch.randperm(batch * COLUMNS, generator=torch.Generator().manual_seed(1))
    table = (order + 1).view(batch, COLUMNS).to(torch.int32)
    kv = randn(2, 1 + batch * COLUMNS, BLOCK_SIZE, KV_HEADS, size, dtype=dtype)
    q = randn(batch, width, KV_HEADS * group, size, seed=2, dtype=dtype)
    keys, values = (randn(batch, width, KV_HEADS, size, seed=seed, dtype=dtype) for seed in (3, 4))

    span = plan_span(table.to(DEVICE), lengths.to(DEVICE), width, BLOCK_SIZE)
    expected = reference.attend_span(wide(q), wide(kv), plan_span(table, lengths, width, BLOCK_SIZE))
    close(attended := kernel.attend_span(q, kv, span), expected.to(dtype))
    assert torch.equal(kernel.attend_span(q, kv, replace(span, short=True)), attended), "for short contexts"

    span = plan_context(table.to(DEVICE), lengths.to(DEVICE), width, BLOCK_SIZE)
    context = plan_context(table, lengths, width, BLOCK_SIZE)
    expected = reference.attend_block(wide(q), wide(keys), wide(values), wide(kv), context)
    close(kernel.attend_block(q, keys, values, kv, span), expected.to(dtype))


def wide(tensor: Tensor) -> Tensor:
    """The same numbers on the CPU, in float64."""
    return tensor.cpu().double()


LONG = [0, 63, 1008, 1016, 2040, 4090, 7160, 8190]
"""Lengths next to ends of tiles; in some tiles rows have splits of two sizes."""


@pytest.mark.parametrize(("width", "tile"), [(1, 16), (4, 16), (8, 64), (16, 64)])
@pytest.mark.parametrize("window", [0, 1500])
def test_shares_of_splits_change_no_bit(width: int, tile: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of programs, however far ahead they ask for keys."""
    columns = -(-(max(LONG) + width) // BLOCK_SIZE)
    order = torch.randperm(len(LONG) * columns, generator=torch.Generator().manual_seed(1)) + 1
    table = order.view(len(LONG), columns).to(torch.int32).to(DEVICE)
    kv = randn(2, 1 + len(order), BLOCK_SIZE, KV_HEADS, 128, dtype=torch.bfloat16)
    q = 2 * randn(len(LONG), width, 4 * KV_HEADS, 128, seed=2, dtype=torch.bfloat16)
    keys, values = randn(2, len(LONG), width, KV_HEADS, 128, seed=3, dtype=torch.bfloat16)
    lengths = torch.tensor(LONG, device=DEVICE)
    span = plan_span(table, lengths, width, BLOCK_SIZE, mask=Mask(window))
    block = seen_through(plan_context(table, lengths, width, BLOCK_SIZE), Mask(window))

    def attended(cut: Cut) -> Tensor:
        monkeypatch.setattr(kernel, "tiles_of", lambda *_: None)
        monkeypatch.setattr(kernel, "cut_span", lambda *_: cut)
        return torch.stack((kernel.attend_span(q, kv, span), kernel.attend_block(q, keys, values, kv, block)))

    alone = attended(Cut(64, 1))
    for programs, stages in ((1, 7), (2, 7), (3, 5), (8, 3), (16, 3)):
        assert torch.equal(attended(Cut(tile, programs, stages, 2 if tile == 16 else 4)), alone), (programs, stages)


def test_wide_heads_keep_to_a_short_pipeline() -> None:
    """Seven or five tiles of keys under way would not fit the shared memory of a multiprocessor."""
    cuts = [cut_span(rows, batch * KV_HEADS, 512) for batch in (1, 8, 16, 32, 128) for rows in (1, 16, 32, 64)]
    assert {cut.stages for cut in cuts} == {3}
