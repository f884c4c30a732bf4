"""Log-probabilities on the GPU: sums of a row by tiles of the vocabulary, and its best tokens with ties by id.

A library orders the sum by how a row lies in memory, and breaks ties by how many rows there are. Bytes for R rows: R V
e for the sums, and 10 R V more for the best tokens, of a few rows at a time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.accept.scores import PEAK_TILE, UNFUSED

_ROWS_AT_ONCE = 8
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1


def logprobs(logits_BWV: Tensor, tokens_BW: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities of the chosen tokens [B, W], and the `top` ids and values [B, W, n]."""
    logits_RV, tokens_R = logits_BWV.flatten(0, 1).contiguous(), tokens_BW.flatten().clamp(min=0)
    mass_R1 = _mass(logits_RV)[:, None]
    chosen_R1 = logits_RV.gather(1, tokens_R[:, None]).float() - mass_R1
    ids_RN = torch.cat([_best(some_RV.float(), top) for some_RV in logits_RV.split(_ROWS_AT_ONCE)])
    values_RN = logits_RV.gather(1, ids_RN).float() - mass_R1
    shape = tokens_BW.shape
    return chosen_R1.view(shape), ids_RN.view(*shape, top), values_RN.view(*shape, top)


def _mass(logits_RV: Tensor) -> Tensor:
    """Return the logarithm [R] of the sum of all exponentials of a row."""
    rows, vocab = logits_RV.shape
    tiles = int(triton.cdiv(vocab, PEAK_TILE))
    peaks_RT, sums_RT = logits_RV.new_empty((2, rows, tiles), dtype=torch.float32)
    mass_R = logits_RV.new_empty(rows, dtype=torch.float32)
    tile_mass_kernel[(rows, tiles)](logits_RV, peaks_RT, sums_RT, vocab, TILE=PEAK_TILE, **UNFUSED)
    row_mass_kernel[(rows,)](peaks_RT, sums_RT, mass_R, tiles, TILES_PAD=triton.next_power_of_2(tiles), **UNFUSED)
    return mass_R


def _best(scores_RV: Tensor, top: int) -> Tensor:
    """Return the ids [R, n] of the highest scores, the lowest id among equals: keys of score and id are all unlike."""
    bits_RV = (scores_RV + 0.0).view(torch.int32)  # -0 becomes 0
    order_RV = bits_RV ^ ((bits_RV >> 31) & 0x7FFFFFFF)
    ids_V = torch.arange(scores_RV.shape[1], device=scores_RV.device)
    keys_RV = (order_RV.long() << _ID_BITS) | (_ID_MASK - ids_V)
    return _ID_MASK - (keys_RV.topk(top, 1).values & _ID_MASK)


@triton.jit
def tile_mass_kernel(logits_ptr, peaks_ptr, sums_ptr, vocab, TILE: tl.constexpr):
    """Write a tile's highest score, and the sum of the exponentials of its distances from it."""
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = tile * TILE + tl.arange(0, TILE)
    score = tl.load(logits_ptr + row * vocab + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    peak = tl.max(score, 0)
    spoilt = tl.sum((score != score).to(tl.int32), 0) > 0
    total = tl.sum(tl.where(score == float("-inf"), 0.0, tl.exp(score - peak)), 0)
    at = row * tl.num_programs(1) + tile
    tl.store(peaks_ptr + at, peak)
    tl.store(sums_ptr + at, tl.where(spoilt, float("nan"), total))


@triton.jit
def row_mass_kernel(peaks_ptr, sums_ptr, mass_ptr, tiles, TILES_PAD: tl.constexpr):
    """Add a row's tiles by one tree and write the logarithm."""
    row, tile = tl.program_id(0).to(tl.int64), tl.arange(0, TILES_PAD)
    peak = tl.load(peaks_ptr + row * tiles + tile, mask=tile < tiles, other=float("-inf"))
    part = tl.load(sums_ptr + row * tiles + tile, mask=tile < tiles, other=0.0)
    best = tl.max(peak, 0)
    total = tl.sum(tl.where(part == 0.0, 0.0, part * tl.exp(peak - best)), 0)
    tl.store(mass_ptr + row, best + tl.log(total))
