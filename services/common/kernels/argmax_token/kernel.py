"""Argmax on the GPU in two launches: one program per row and tile, then one per row.

Bytes for R rows: R V e, read once. A reduction with one program a row leaves most of the GPU idle at a few rows. Of a
product some columns exist at a time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.argmax_token.columns import TILE, columns_at_once
from services.common.kernels.argmax_token.drawn import arguments, drawn
from services.common.kernels.argmax_token.draws import Draws
from services.common.kernels.argmax_token.top import top_of_product
from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight, lines
from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous

__all__ = ["argmax_of_product", "argmax_token", "top_of_product"]


def argmax_token(logits: Tensor) -> Tensor:
    """Return the argmax of the last dimension; NaN never wins."""
    flat_RV = logits.reshape(-1, logits.shape[-1])
    best = _Best(len(flat_RV), flat_RV.shape[1], logits.device)
    best.take(flat_RV, 0)
    return best.tokens().view(logits.shape[:-1])


def argmax_of_product(rows_RD: Tensor, weight_VD: Weight, draws: Draws | None = None, columns: int = 0) -> Tensor:
    """Return the argmax of every row of `rows @ weight.T`, of so many columns at a time; NaN never wins."""
    vocab = len(weight_VD)
    columns = columns or columns_at_once(len(rows_RD), vocab)
    best = _Best(len(rows_RD), vocab, rows_RD.device)
    for first in range(0, vocab, columns):
        best.take(linear(rows_RD, lines(weight_VD, first, first + columns)), first, draws)
    return best.tokens()


class _Best:
    """The best score of every row and tile, and its token."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        self._tiles = int(triton.cdiv(vocab, TILE))
        self._values_RT = torch.empty((rows, self._tiles), dtype=torch.float32, device=device)
        self._tokens_RT = torch.empty((rows, self._tiles), dtype=torch.int32, device=device)

    def take(self, scores_RC: Tensor, first: int, draws: Draws | None = None) -> None:
        """Fill the tiles of the tokens from `first` on."""
        rows, columns = scores_RC.shape
        _tile_kernel[(rows, triton.cdiv(columns, TILE))](
            scores_RC, self._values_RT, self._tokens_RT, columns, scores_RC.stride(0), first, self._tiles,
            *arguments(draws, rows), TILE=TILE, PDL=PDL, **LAUNCH,
        )  # fmt: skip

    def tokens(self) -> Tensor:
        """Return the best token of every row [R]."""
        best_R = torch.empty(len(self._values_RT), dtype=torch.int64, device=self._values_RT.device)
        _row_kernel[(len(best_R),)](
            self._values_RT, self._tokens_RT, best_R, self._tiles,
            TILES_PAD=triton.next_power_of_2(self._tiles), PDL=PDL, **LAUNCH,
        )  # fmt: skip
        return best_R


@triton.jit
def _tile_kernel(
    scores_ptr, values_ptr, tokens_ptr, columns, stride, first, tiles,
    rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind,
    TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    allow_next(PDL)
    await_previous(PDL)
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    score = tl.load(scores_ptr + row * stride + column, mask=column < columns, other=float("-inf")).to(tl.float32)
    score = drawn(
        score, first + tile * TILE, first + columns, row,
        rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind, TILE,
    )  # fmt: skip
    score = tl.where(score == score, score, float("-inf"))
    best = tl.max(score, 0)
    at = row * tiles + first // TILE + tile
    tl.store(values_ptr + at, best)
    tl.store(tokens_ptr + at, first + tl.min(tl.where(score == best, column, 2147483647), 0))


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
