"""Attention behind a sliding window by kernel and in torch, and along the branches of a tree in torch."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, Span, kernel, plan_context, plan_span, reference, seen_through
from tests.kernels.gpu.devices import DEVICE, DTYPES, close, randn
from tests.kernels.gpu.test_attention import BLOCK_SIZE, LENGTHS, dense, poisoned_kv, softmax_attention, tables

WIDTH, HEADS, KV_HEADS, SIZE = 5, 4, 2, 16
PARENTS = (None, 0, 0, 1, 2)


def branches() -> list[list[int]]:
    """Rows that each row of the tree sees: its ancestors and itself."""
    seen: list[list[int]] = []
    for row, parent in enumerate(PARENTS):
        seen.append([*(seen[parent] if parent is not None else []), row])
    return seen


def by_bits(seen: list[list[int]], window: int) -> Mask:
    """The mask of rows that see others of their span, and what a window of the context has."""
    bits = torch.tensor([[sum(1 << row for row in rows) for rows in seen]] * len(LENGTHS))
    depths = torch.tensor([[len(rows) - 1 for rows in seen]] * len(LENGTHS))
    return Mask(window, ancestors_BW=bits, depths_BW=depths)


def of_kind(kind: str, window: int) -> tuple[list[list[int]], Mask]:
    """The rows that each row of a causal span sees, and the mask that says so."""
    if kind == "tree":
        return branches(), by_bits(branches(), window)
    chain = [list(range(row + 1)) for row in range(WIDTH)]
    return chain, by_bits(chain, window) if kind == "chain by bits" else Mask(window)


def planned(table: Tensor, mask: Mask, device: str) -> Span:
    return plan_span(table.to(device), torch.tensor(LENGTHS, device=device), WIDTH, BLOCK_SIZE, mask=mask)


def forget(kv: Tensor, table: Tensor, window: int) -> None:
    """What no window reaches may hold anything."""
    for row, length in enumerate(LENGTHS[:-1]):
        places = torch.arange(max(0, length + 1 - window) if window else 0)
        kv[:, table[row].cpu().long()[places // BLOCK_SIZE], places % BLOCK_SIZE] = float("nan")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kind", "window"), [("chain", 9), ("chain", 3), ("chain by bits", 0), ("tree", 0), ("tree", 9)]
)
def test_rows_of_the_target(kind: str, window: int, dtype: torch.dtype) -> None:
    table, (seen, mask) = tables(LENGTHS, WIDTH), of_kind(kind, window)
    kv = poisoned_kv(KV_HEADS, SIZE, table, [length + WIDTH for length in LENGTHS], dtype)
    forget(kv, table, window)
    q, span = randn(len(LENGTHS), WIDTH, HEADS, SIZE, dtype=dtype), planned(table, mask, "cpu")
    in_torch = reference.attend_span(q.cpu(), kv.cpu().nan_to_num(), span)
    by_kernel = kernel.attend_span(q, kv, planned(table, mask, DEVICE)) if kind == "chain" else in_torch
    for row, length in enumerate(LENGTHS[:-1]):
        keys, values = dense(kv, table, row, length + WIDTH)
        for offset, rows in enumerate(seen):
            assert span.positions_BW[row, offset] == length + len(rows) - 1
            first = max(0, length + len(rows) - window) if window else 0
            own = rows if kind == "tree" else [one for one in rows if length + one >= first]
            places = torch.tensor([*range(min(first, length), length), *(length + one for one in own)])
            expected = softmax_attention(q[row, offset], keys[places], values[places]).to(dtype)
            close(by_kernel[row, offset], expected)
            close(in_torch[row, offset], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("causal", "window"), [("", 9), ("", 3), ("by itself", 0), ("by itself", 9)])
def test_blocks_of_the_drafter(causal: str, window: int, dtype: torch.dtype) -> None:
    """Layers with a window may be causal within their block."""
    table = tables(LENGTHS, WIDTH)
    kv = poisoned_kv(KV_HEADS, SIZE, table, LENGTHS, dtype)
    forget(kv, table, window)
    shape = (len(LENGTHS), WIDTH, KV_HEADS, SIZE)
    q = randn(*shape[:2], HEADS, SIZE, dtype=dtype)
    own_keys, own_values = (randn(*shape, seed=seed, dtype=dtype) for seed in (5, 6))
    mask, lengths = Mask(window, causal=bool(causal)), torch.tensor(LENGTHS)
    device, host = (
        seen_through(plan_context(table.to(where), lengths.to(where), WIDTH, BLOCK_SIZE), mask)
        for where in (DEVICE, "cpu")
    )
    by_kernel = kernel.attend_block(q, own_keys, own_values, kv, device)
    in_torch = reference.attend_block(q.cpu(), own_keys.cpu(), own_values.cpu(), kv.cpu().nan_to_num(), host)
    for row, length in enumerate(LENGTHS[:-1]):
        past_keys, past_values = dense(kv, table, row, length)
        for offset in range(WIDTH):
            first = min(max(0, length + offset + 1 - window) if window else 0, length)
            near = max(0, offset + 1 - window) if window else 0
            own = slice(near, offset + 1 if causal else WIDTH)
            keys = torch.cat((past_keys[first:], own_keys[row, own].cpu().double()))
            values = torch.cat((past_values[first:], own_values[row, own].cpu().double()))
            expected = softmax_attention(q[row, offset], keys, values).to(dtype)
            close(by_kernel[row, offset], expected)
            close(in_torch[row, offset], expected)
