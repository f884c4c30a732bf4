"""The floor of top-k, top-p and min-p on the GPU, without a sort: a search over the bits of the threshold.

Float32 scores are mapped to integers of the same order, and the threshold is found four bits at a time: a launch sums
every tile's amounts (counts for top-k, weights for top-p) for the sixteen candidates, and the next launch adds up the
tiles in their order, so the same bits come out every time. Bytes for R rows that cut by both: 64 R V, most from L2.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.accept.state import SlotState
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous

_TILE = 128 if INTERPRETED else 2048
_WARPS = 1
"""More would compute every weight again for their own candidates."""
_PHASE = 8
"""Launches for the 32 bits of one threshold."""


def floors(scores: Tensor, peaks: Tensor, rows_B: Tensor, state: SlotState, width: int) -> Tensor:
    """Return the least score [R] that each row may choose, -inf where nothing is left out.

    `scores` are [R, V] for R = B * width rows, `peaks` their highest by tiles.
    """
    rows, vocab = scores.shape
    tiles, device = triton.cdiv(vocab, _TILE), scores.device
    floors_R = torch.empty(rows, dtype=torch.float32, device=device)
    amounts = torch.empty((2, rows, tiles, 16), dtype=torch.float32, device=device)
    keys, needed = torch.empty((2, rows, 2), dtype=torch.int32, device=device), torch.empty((2, rows), device=device)
    for step in range(2 * _PHASE + 1):
        narrow_kernel[(rows, tiles if step < 2 * _PHASE else 1)](
            scores, peaks, rows_B, state.temperature_S, state.top_k_S, state.top_p_S, state.min_p_S,
            amounts, keys, needed, floors_R, vocab, rows, tiles, peaks.shape[1], step,
            WIDTH=width, TILE=_TILE, TILES_PAD=triton.next_power_of_2(tiles),
            PEAKS_PAD=triton.next_power_of_2(peaks.shape[1]), PHASE=_PHASE, PDL=PDL, num_warps=_WARPS, **LAUNCH,
        )  # fmt: skip
    return floors_R


@triton.jit
def _ordered(score):
    """Map float32 to int32 so that the order of the numbers is kept; its own inverse on the bits."""
    bits = score.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _amounts(scores_ptr, vocab, tile, first_key, step_bits, above, best, weigh, TILE: tl.constexpr):
    """Sum over a tile, for each of 16 candidate keys, what the scores at least as large amount to."""
    candidate = first_key + (tl.arange(0, 16) << step_bits)
    total = tl.zeros((16, 128), dtype=tl.float32)
    for start in range(0, TILE, 128):
        token = tile * TILE + start + tl.arange(0, 128)
        score = tl.load(scores_ptr + token, mask=token < vocab, other=float("-inf"))
        key = _ordered(score)
        value = tl.where((token < vocab) & (key >= above), tl.where(weigh, tl.exp(score - best), 1.0), 0.0)
        total += tl.where(key[None, :] >= candidate[:, None], value[None, :], 0.0)
    return tl.sum(total, 1)


@triton.jit(do_not_specialize=["step"])
def narrow_kernel(
    scores_ptr, peaks_ptr, rows_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, amounts_ptr, keys_ptr,
    needed_ptr, floors_ptr, vocab, rows, tiles, peaks, step,
    WIDTH: tl.constexpr, TILE: tl.constexpr, TILES_PAD: tl.constexpr, PEAKS_PAD: tl.constexpr, PHASE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Settle four bits by the last step's amounts, then sum this step's: first top-k's steps, then top-p's.

    The last step writes the floor. What a step leaves lies beside what it read, for its programs finish at any time.
    """
    allow_next(PDL)
    program, tile, candidate = tl.program_id(0), tl.program_id(1), tl.arange(0, 16)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    top_k, top_p, min_p = tl.load(top_k_ptr + slot), tl.load(top_p_ptr + slot), tl.load(min_p_ptr + slot)
    sampled = tl.load(temperature_ptr + slot) > 0
    by_count, by_mass = sampled & (top_k > 0), sampled & (top_p < 1)
    await_previous(PDL)
    peak = tl.arange(0, PEAKS_PAD)
    best = tl.max(tl.load(peaks_ptr + program * peaks + peak, mask=peak < peaks, other=float("-inf")), 0)
    key = tl.full((), -2147483648, tl.int32)
    above, needed = key, tl.minimum(top_k, vocab).to(tl.float32)
    before, after = ((step + 1) % 2) * rows + program, (step % 2) * rows + program
    if step > 0:
        key, above = tl.load(keys_ptr + before * 2), tl.load(keys_ptr + before * 2 + 1)
        needed = tl.load(needed_ptr + before)
        if tl.where(step <= PHASE, by_count, by_mass):
            part = tl.arange(0, TILES_PAD)
            at = (before * tiles + part)[:, None] * 16 + candidate[None, :]
            amount = tl.sum(tl.load(amounts_ptr + at, mask=(part < tiles)[:, None], other=0.0), 0)
            if step == PHASE + 1:
                needed = top_p * tl.max(amount, 0)
            digit = tl.maximum(tl.sum((amount >= needed).to(tl.int32), 0) - 1, 0)
            key += digit << (28 - 4 * ((step - 1) % PHASE))
    if step == PHASE:
        above, key = key, tl.full((), -2147483648, tl.int32)
    if step == 2 * PHASE:
        least = tl.minimum(tl.maximum(key, above), _ordered(best))
        cut = (least ^ ((least >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        floor = tl.where(by_count | by_mass, cut, float("-inf"))
        floor = tl.where(sampled & (min_p > 0), tl.maximum(floor, best + tl.log(min_p)), floor)
        tl.store(floors_ptr + program, floor)
    else:
        if tile == 0:
            tl.store(keys_ptr + after * 2, key)
            tl.store(keys_ptr + after * 2 + 1, above)
            tl.store(needed_ptr + after, needed)
        if tl.where(step < PHASE, by_count, by_mass):
            shift = 28 - 4 * (step % PHASE)
            scores_ptr += program.to(tl.int64) * vocab
            amount = _amounts(scores_ptr, vocab, tile, key, shift, above, best, step >= PHASE, TILE)
            tl.store(amounts_ptr + (after * tiles + tile) * 16 + candidate, amount)
