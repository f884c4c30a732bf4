"""Argmax on the GPU in two launches: one program per row and tile, then one per row.

Bytes for R rows: R V e, read once. A reduction with one program a row leaves most of the GPU idle at a few rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.overlap import LAUNCH, PDL, allow_next, await_previous

_TILE = 4096


def best_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension; NaN never wins."""
    flat_RV = logits.reshape(-1, logits.shape[-1])
    rows, vocab = flat_RV.shape
    tiles = triton.cdiv(vocab, _TILE)
    values = torch.empty((rows, tiles), dtype=torch.float32, device=logits.device)
    tokens = torch.empty((rows, tiles), dtype=torch.int32, device=logits.device)
    best_R = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _tile_kernel[(rows, tiles)](flat_RV, values, tokens, vocab, flat_RV.stride(0), TILE=_TILE, PDL=PDL, **LAUNCH)
    _row_kernel[(rows,)](values, tokens, best_R, tiles, TILES_PAD=triton.next_power_of_2(tiles), PDL=PDL, **LAUNCH)
    return best_R.view(logits.shape[:-1])


@triton.jit
def _tile_kernel(logits_ptr, values_ptr, tokens_ptr, vocab, stride, TILE: tl.constexpr, PDL: tl.constexpr):
    allow_next(PDL)
    await_previous(PDL)
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = tile * TILE + tl.arange(0, TILE)
    score = tl.load(logits_ptr + row * stride + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    score = tl.where(score == score, score, float("-inf"))
    best = tl.max(score, 0)
    at = row * tl.num_programs(1) + tile
    tl.store(values_ptr + at, best)
    tl.store(tokens_ptr + at, tl.min(tl.where(score == best, token, 2147483647), 0))


@triton.jit
def _row_kernel(values_ptr, tokens_ptr, best_ptr, tiles, TILES_PAD: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0)
    allow_next(PDL)
    await_previous(PDL)
    tile = tl.arange(0, TILES_PAD)
    value = tl.load(values_ptr + row * tiles + tile, mask=tile < tiles, other=float("-inf"))
    token = tl.load(tokens_ptr + row * tiles + tile, mask=tile < tiles, other=2147483647)
    best = tl.max(value, 0)
    tl.store(best_ptr + row, tl.min(tl.where(value == best, token, 2147483647), 0).to(tl.int64))
