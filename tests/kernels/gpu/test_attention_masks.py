"""Attention behind a sliding window and along the branches of a tree, by kernel and in torch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, Span, kernel, plan_context, plan_span, reference, seen_through
from services.common.kernels.span_attention.span import OPEN
from tests.kernels.gpu.devices import DEVICE, DTYPES, close, randn
from tests.kernels.gpu.test_attention import BLOCK_SIZE, LENGTHS, dense, poisoned_kv, softmax_attention, tables

WIDTH, HEADS, KV_HEADS, SIZE = 5, 4, 2, 16
PARENTS = (None, 0, 0, 1, 2)
Plan = Callable[..., Span]


def branches() -> list[list[int]]:
    """Rows that each row of the tree sees: its ancestors and itself."""
    seen: list[list[int]] = []
    for row, parent in enumerate(PARENTS):
        seen.append([*(seen[parent] if parent is not None else []), row])
    return seen


def bits(seen: list[list[int]]) -> Tensor:
    return torch.tensor([[sum(1 << row for row in rows) for rows in seen]] * len(LENGTHS))


def of_kind(kind: str) -> tuple[list[list[int]], Tensor | None]:
    """The rows that each row of a causal span sees, and how the mask says so."""
    if kind == "tree":
        return branches(), bits(branches())
    chain = [list(range(row + 1)) for row in range(WIDTH)]
    return chain, bits(chain) if kind == "chain by bits" else None


def planned(plan: Plan, table: Tensor, mask: Mask, device: str) -> Span:
    ancestors = None if mask.ancestors_BW is None else mask.ancestors_BW.to(device)
    lengths = torch.tensor(LENGTHS, device=device)
    return plan(table.to(device), lengths, WIDTH, BLOCK_SIZE, mask=Mask(mask.window, ancestors))


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
    table, (seen, ancestors) = tables(LENGTHS, WIDTH), of_kind(kind)
    kv = poisoned_kv(KV_HEADS, SIZE, table, [length + WIDTH for length in LENGTHS], dtype)
    forget(kv, table, window)
    q, mask = randn(len(LENGTHS), WIDTH, HEADS, SIZE, dtype=dtype), Mask(window, ancestors)
    span = planned(plan_span, table, mask, DEVICE)
    by_kernel = kernel.attend_span(q, kv, span)
    in_torch = reference.attend_span(q.cpu(), kv.cpu().nan_to_num(), planned(plan_span, table, mask, "cpu"))
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
@pytest.mark.parametrize(
    ("causal", "window"), [("", 9), ("", 3), ("by bits", 0), ("by bits", 9), ("by itself", 0), ("by itself", 9)]
)
def test_blocks_of_the_drafter(causal: str, window: int, dtype: torch.dtype) -> None:
    """Layers with a window may be causal within their block."""
    table = tables(LENGTHS, WIDTH)
    kv = poisoned_kv(KV_HEADS, SIZE, table, LENGTHS, dtype)
    forget(kv, table, window)
    shape = (len(LENGTHS), WIDTH, KV_HEADS, SIZE)
    q = randn(*shape[:2], HEADS, SIZE, dtype=dtype)
    own_keys, own_values = (randn(*shape, seed=seed, dtype=dtype) for seed in (5, 6))
    if causal == "by bits":
        mask = Mask(window, of_kind("chain by bits")[1])
        device, host = (planned(plan_context, table, mask, where) for where in (DEVICE, "cpu"))
    else:
        mask = Mask(window, causal=bool(causal))
        device, host = (seen_through(planned(plan_context, table, OPEN, where), mask) for where in (DEVICE, "cpu"))
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


def test_a_window_narrower_than_a_tree_is_refused() -> None:
    with pytest.raises(AssertionError, match="window"):
        planned(plan_span, tables(LENGTHS, WIDTH), Mask(WIDTH - 1, bits(branches())), DEVICE)
