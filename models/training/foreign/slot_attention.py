"""A GPU kernel: one query a slot attends to the keys that its slot has so far, and to nothing behind them."""

# ruff: noqa: ANN001, ANN202, PLR0913
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, places_ptr, scale, length,
    GROUP: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    last = tl.load(places_ptr + tl.program_id(0))
    row, column, key = tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, TILE)
    own = (pair * GROUP + row[:, None]) * DIM + column
    real = (row[:, None] < GROUP) & (column < DIM)
    q = tl.load(q_ptr + own, mask=real, other=0.0)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDE), tl.float32)
    for start in range(0, last + 1, TILE):
        seen = start + key <= last
        at = (pair * length + start + key[:, None]) * DIM + column
        held = seen[:, None] & (column < DIM)
        scores = tl.dot(q, tl.trans(tl.load(k_ptr + at, mask=held, other=0.0))) * scale
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        shares = tl.exp(scores - higher[:, None])
        fade = tl.exp(best - higher)
        total = total * fade + tl.sum(shares, 1)
        values = tl.load(v_ptr + at, mask=held, other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(shares.to(values.dtype), values)
        best = higher
    tl.store(out_ptr + own, (mixed / total[:, None]).to(out_ptr.dtype.element_ty), mask=real)


def attend(q: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Return mixed rows [slots, heads, head_dim] of queries; keys and values are [slots, K/V heads, length, head_dim].

    A slot's keys stand at 0 to `places` [slots], that included.
    """
    slots, kv_heads, length, dim = keys.shape
    group = q.shape[1] // kv_heads
    q, out = q.contiguous(), torch.empty(q.shape, dtype=q.dtype, device=q.device)
    _kernel[(slots, kv_heads)](
        q, keys, values, out, places, dim**-0.5, length,
        GROUP=group, DIM=dim, ROWS=max(16, triton.next_power_of_2(group)), WIDE=max(16, triton.next_power_of_2(dim)),
        TILE=64, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
