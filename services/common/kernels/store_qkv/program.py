"""The program of a projection whose band of lines is a head: it also norms, rotates and stores the head."""

# mypy: allow-untyped-defs, allow-untyped-decorators

import triton
import triton.language as tl

from services.common.kernels.linear.program import multiply
from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight
from services.common.kernels.rope.kernel import turn
from services.common.kernels.sums import root_scale


@triton.jit
def project_kernel(
    x_ptr, weight_ptr, squares_ptr, bias_ptr, norm_ptr, cos_ptr, sin_ptr, slots_ptr, q_ptr, kv_ptr,
    rows, depth, stride, places, inverse_depth, eps,
    ROWS: tl.constexpr, SIZE: tl.constexpr, QUERIES: tl.constexpr, KV_HEADS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN: tl.constexpr, OFFSET: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Grid (Hq + 2 Hkv): a head each, in the order queries, keys, values; `bias_ptr` and `norm_ptr` may be None."""
    head, row = tl.program_id(0), tl.arange(0, ROWS)
    line, half = head * SIZE + tl.arange(0, SIZE), tl.arange(0, SIZE // 2)[:, None]
    known = (row < rows)[None, :]
    turns = head < QUERIES + KV_HEADS
    # Values for the end are loaded before the loop, which hides their latency; no kernel of the chain writes them.
    slot = tl.load(slots_ptr + row, mask=row < rows, other=0).to(tl.int64)[None, :]
    norm_low, norm_high = 1.0, 1.0
    if norm_ptr is not None:
        norm_low = tl.load(norm_ptr + head * SIZE + half, mask=turns, other=0.0).to(tl.float32)
        norm_high = tl.load(norm_ptr + head * SIZE + SIZE // 2 + half, mask=turns, other=0.0).to(tl.float32)
        norm_low, norm_high = norm_weight(norm_low, OFFSET), norm_weight(norm_high, OFFSET)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + line).to(tl.float32)[:, None]
    angle = row[None, :] * SIZE + half
    cos, sin_low = tl.load(cos_ptr + angle, mask=known, other=0.0), tl.load(sin_ptr + angle, mask=known, other=0.0)
    await_previous(PDL)
    squares = 0
    if squares_ptr is not None:
        squares = tl.load(squares_ptr + row, mask=row < rows, other=0)
    end_line = (QUERIES + 2 * KV_HEADS) * SIZE
    total = multiply(x_ptr, weight_ptr, line, end_line, row, rows, depth, stride, DEPTH, EVEN, False)
    allow_next(PDL)
    # Rounded as a product of its own would leave it.
    kind = q_ptr.dtype.element_ty
    mixed = total.to(kind).to(tl.float32)
    if squares_ptr is not None:
        mixed *= root_scale(squares, inverse_depth, eps)[None, :]
    if bias_ptr is not None:
        mixed += bias
    low, high = tl.split(tl.permute(tl.reshape(mixed, (2, SIZE // 2, ROWS)), (1, 2, 0)))
    target = q_ptr + (row * QUERIES + head)[None, :] * SIZE + half
    if turns:
        low, high = turn(low, high, norm_low, norm_high, cos, sin_low, eps, SIZE, norm_ptr is not None)
    if head >= QUERIES:
        place = slot if turns else slot + places
        target = kv_ptr + (place * KV_HEADS + (head - QUERIES) % KV_HEADS) * SIZE + half
    tl.store(target, low.to(kind), mask=known)
    tl.store(target + SIZE // 2, high.to(kind), mask=known)
