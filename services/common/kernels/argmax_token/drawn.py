"""The noise of `Draws` within a kernel that reads scores: none of it is ever stored."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, allow-untyped-calls

from typing import Any

import triton
import triton.language as tl

from services.common.kernels.argmax_token.draws import Draws
from services.common.kernels.gumbel import gumbel_at, gumbel_of


def arguments(draws: Draws | None, rows: int) -> tuple[Any, ...]:
    """Return what kernels are given for so many rows; without tensors nothing is drawn."""
    if draws is None:
        return None, None, None, None, None, 0.0, 1, 0
    return *draws[:4], draws.tokens_V, draws.sharpness, rows // len(draws.rows_B), draws.first


@triton.jit
def drawn(
    score, line, last, row,
    rows_ptr, seed_ptr, length_ptr, temperature_ptr, map_ptr, sharpness, count, behind, SIZE: tl.constexpr,
):  # fmt: skip
    """Return scores [.., SIZE] with the noise of their row; those of a `line` begin at a multiple of four.

    No entry is mapped from `last` on.
    """
    if rows_ptr is not None:
        slot = tl.load(rows_ptr + row // count).to(tl.int64)
        heat = tl.load(temperature_ptr + slot)
        if heat > 0:
            seed, position = tl.load(seed_ptr + slot), tl.load(length_ptr + slot) + 1 + behind + row % count
            if map_ptr is None:
                noise = gumbel_of(seed, position, (line // 4 + tl.arange(0, SIZE // 4)).to(tl.uint32))
            else:
                entry = line + tl.arange(0, SIZE)
                noise = gumbel_at(seed, position, tl.load(map_ptr + entry, mask=entry < last, other=0))
            score = score * (sharpness / heat) + noise
    return score
