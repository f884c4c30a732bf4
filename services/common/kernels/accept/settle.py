"""Narrows a row's search before each of its passes; one program a row.

A row's bounds are low, high, above, needed (see `interval`), its best score, and what cuts it: 1 top-p, 2 top-k.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl

from services.common.kernels.accept.interval import divided, narrowed, summed
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def begin_kernel(
    peaks_ptr, rows_ptr, edges_ptr, bounds_ptr, vocab, peaks, temperature_ptr, top_k_ptr, top_p_ptr,
    WIDTH: tl.constexpr, PEAKS_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Open a row's interval. A row without a finite peak is skipped, because it ends its request."""
    allow_next(PDL)
    await_previous(PDL)
    program, peak, index = tl.program_id(0), tl.arange(0, PEAKS_PAD), tl.arange(0, 16)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    top_k, top_p = tl.load(top_k_ptr + slot), tl.load(top_p_ptr + slot)
    best = tl.max(tl.load(peaks_ptr + program * peaks + peak, mask=peak < peaks, other=float("-inf")), 0)
    searched = (tl.load(temperature_ptr + slot) > 0) & (best > float("-inf")) & (best < float("inf"))
    by_mass, by_count = searched & (top_p < 1), searched & (top_k > 0) & (top_k < vocab)
    low, high = tl.full((), float("-inf"), tl.float32), tl.full((), float("inf"), tl.float32)
    tl.store(edges_ptr + program * 16 + index, divided(low, high, best))
    bounds_ptr += program * 8
    tl.store(bounds_ptr, low)
    tl.store(bounds_ptr + 1, high)
    tl.store(bounds_ptr + 2, 0.0)
    tl.store(bounds_ptr + 4, best)
    tl.store(bounds_ptr + 5, by_mass.to(tl.float32) + 2 * by_count.to(tl.float32))


@triton.jit
def narrow_kernel(
    rows_ptr, amounts_ptr, edges_ptr, bounds_ptr, tiles, top_k_ptr, top_p_ptr,
    WIDTH: tl.constexpr, TILES_PAD: tl.constexpr, LAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Narrow a row's interval down by the sums of the pass before.

    The first sums tell which amount is needed. A row that cuts by both searches top-k's threshold first. Its LAST
    interval reaches up to the peak, because top-p weighs all scores above too.
    """
    allow_next(PDL)
    await_previous(PDL)
    program, index = tl.program_id(0), tl.arange(0, 16)
    bounds_ptr += program * 8
    kind = tl.load(bounds_ptr + 5)
    if kind > 0:
        high, above, best = tl.load(bounds_ptr + 1), tl.load(bounds_ptr + 2), tl.load(bounds_ptr + 4)
        amount = summed(amounts_ptr, program, tiles, TILES_PAD)
        if LAST:
            needed = tl.load(bounds_ptr + 3)
        else:
            slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
            top_k, top_p = tl.load(top_k_ptr + slot), tl.load(top_p_ptr + slot)
            needed = tl.where(kind >= 2, top_k.to(tl.float32), top_p * tl.max(amount, 0))
        low, high, above = narrowed(tl.load(edges_ptr + program * 16 + index), amount, high, above, needed)
        if LAST:
            high, above = tl.where(kind == 3, float("inf"), high), tl.where(kind == 3, 0.0, above)
        else:
            tl.store(edges_ptr + program * 16 + index, divided(low, high, best))
        tl.store(bounds_ptr, low)
        tl.store(bounds_ptr + 1, high)
        tl.store(bounds_ptr + 2, above)
        tl.store(bounds_ptr + 3, needed)
