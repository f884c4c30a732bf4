"""Rows of a window that fills all splits: none loses the last tile, however many rows and programs there are."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.span_attention import Mask, kernel, plan_context, plan_span, seen_through
from services.common.kernels.span_attention.cut import Cut
from services.common.kernels.span_attention.splits import MOST_SPLITS, TILE_TOKENS
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED, close, randn

BLOCK_SIZE, GROUP, SIZE, SCALE = 16, 2, 16, 0.4
WINDOW = MOST_SPLITS * TILE_TOKENS
LENGTH = WINDOW + 2 * TILE_TOKENS - 2
"""The first row's window begins with the last position of a tile, and ends in the first ones of another."""
WIDTH = 24 if INTERPRETED else 300
PROGRAMS = (1, 2, MOST_SPLITS)


def paged(width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Keys and values of one sequence, and its table; what stands before all windows is NaN."""
    blocks = -(-(LENGTH + width) // BLOCK_SIZE)
    kv = randn(2, 1 + blocks, BLOCK_SIZE, 1, SIZE, seed=2, dtype=dtype)
    kv.flatten(1, 2)[:, BLOCK_SIZE : BLOCK_SIZE + LENGTH + 1 - WINDOW] = float("nan")
    return kv, torch.arange(1, 1 + blocks, dtype=torch.int32, device=DEVICE)[None]


def span_of(table: Tensor, first: int, width: int, q: Tensor, kv: Tensor) -> Tensor:
    """Some rows of the sequence, by a scale of their own."""
    lengths = torch.tensor([LENGTH + first], device=DEVICE)
    span = plan_span(table, lengths, width, BLOCK_SIZE, mask=Mask(WINDOW))
    return kernel.attend_span(q[:, first : first + width].contiguous(), kv, span, scale=SCALE)[0]


def expected(q: Tensor, kv: Tensor, row: int) -> Tensor:
    """A row of the span, in float64."""
    last = BLOCK_SIZE + LENGTH + row
    keys, values = kv.flatten(1, 2)[:, last + 1 - WINDOW : last + 1, 0].double().cpu()
    scores = SCALE * q[0, row].double().cpu() @ keys.T
    return torch.flatten(scores.softmax(-1) @ values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("programs", PROGRAMS)
def test_rows_of_a_wide_span(programs: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the bits of rows alone."""
    (kv, table), q = paged(WIDTH, dtype), randn(1, WIDTH, GROUP, SIZE, dtype=dtype)
    monkeypatch.setattr(kernel, "cut_span", lambda *_: Cut(16, programs))
    together = span_of(table, 0, WIDTH, q, kv)
    for row in (0, 1, WIDTH // 2, WIDTH - 1):
        assert torch.equal(span_of(table, row, 1, q, kv)[0], together[row]), f"row {row}"
        close(together[row], expected(q, kv, row).to(dtype))


@pytest.mark.parametrize("programs", PROGRAMS)
def test_a_drafters_block(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows see the context behind their windows, and all of the block."""
    width = 8
    (kv, table), q = paged(0, torch.float32), randn(1, width, GROUP, SIZE)
    own_keys, own_values = (randn(1, width, 1, SIZE, seed=seed) for seed in (5, 6))
    monkeypatch.setattr(kernel, "cut_span", lambda *_: Cut(16, programs))
    span = seen_through(plan_context(table, torch.tensor([LENGTH], device=DEVICE), width, BLOCK_SIZE), Mask(WINDOW))
    found = kernel.attend_block(q, own_keys, own_values, kv, span)[0]
    keys, values = kv.flatten(1, 2)[:, BLOCK_SIZE : BLOCK_SIZE + LENGTH, 0]
    for row in (0, width - 1):
        seen = (torch.cat((past[LENGTH + row + 1 - WINDOW :], own[0, :, 0])) for past, own in
                ((keys, own_keys), (values, own_values)))  # fmt: skip
        keys_T, values_T = (each[None].expand(GROUP, -1, -1) for each in seen)
        close(found[row], F.scaled_dot_product_attention(q[0, row][:, None], keys_T, values_T)[:, 0].flatten())
