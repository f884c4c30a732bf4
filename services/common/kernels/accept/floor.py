"""The floor of top-k, top-p and min-p on the GPU, without a sort: two passes of sums, one that gathers, and an end.

Each pass of sums divides the interval that may hold the threshold by sixteen, to a nat and to a sixteenth of one; what
of the latter a tile holds it gathers, and one program a row finds the threshold among those. Sums are of fixed tiles in
their order, so the same bits come out every time. Cost for R rows: 4 R V bytes a pass, at most three passes, of which
the last two skip tiles whose peak is too low; 16 compares and adds a score make a pass of sums slower than its reading
(512 rows of 151,936: 206 us against 74). Four launches cost little (16 rows). Bits of a float would take eight passes.
"""

import torch
import triton
from torch import Tensor

from services.common.kernels.accept.passes import gather_kernel, sum_kernel
from services.common.kernels.accept.scores import PEAK_TILE
from services.common.kernels.accept.state import SlotState
from services.common.kernels.accept.threshold import floor_kernel
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.overlap import LAUNCH, PDL

_SHARE = 2
_TILE = _SHARE * PEAK_TILE
_CHUNK = 128
"""Scores that a warp adds up at a time: more warps a chunk would compute every weight again for edges of their own."""
_FEW_ROWS, _FEW_ROWS_WARPS, _WARPS = 64, 2, 4
_KEPT = 16 if INTERPRETED else 256
"""Scores that a tile can gather: all within a sixteenth of a nat unless over half of the row lies within half a nat."""
_COLUMNS = 16 if INTERPRETED else 64
_END_WARPS = 16


def floors(scores: Tensor, peaks: Tensor, rows_B: Tensor, state: SlotState, width: int) -> Tensor:
    """Return the least score [R] that each row may choose, -inf where nothing is left out.

    `scores` are [R, V] for R = B * width rows, `peaks` the highest of every PEAK_TILE of them.
    """
    rows, vocab = scores.shape
    tiles, device = triton.cdiv(vocab, _TILE), scores.device
    floors_R = torch.empty(rows, dtype=torch.float32, device=device)
    amounts = torch.empty((2, rows, tiles, 16), dtype=torch.float32, device=device)
    edges, bounds = torch.empty((2, rows, 16), device=device), torch.empty((2, rows, 4), device=device)
    kept = torch.empty((rows, tiles, _KEPT), dtype=torch.float32, device=device)
    found = torch.empty((rows, tiles), dtype=torch.int32, device=device)
    row = (scores, peaks, rows_B, state.temperature_S, state.top_k_S, state.top_p_S)
    sizes = (vocab, rows, tiles, peaks.shape[1])
    shape = {
        "WIDTH": width, "TILE": _TILE, "TILES_PAD": triton.next_power_of_2(tiles),
        "PEAKS_PAD": triton.next_power_of_2(peaks.shape[1]), "PDL": PDL, **LAUNCH,
    }  # fmt: skip
    # Few rows need their tiles sooner, many leave no multiprocessor without work.
    warps = _FEW_ROWS_WARPS if rows <= _FEW_ROWS else 1
    for again in (False, True):
        sum_kernel[(rows, tiles)](
            *row, amounts, edges, bounds, *sizes,
            CHUNK=warps * _CHUNK, SHARE=_SHARE, AGAIN=again, num_warps=warps, **shape,
        )  # fmt: skip
    gather_kernel[(rows, tiles)](
        *row, amounts, edges, bounds, kept, found, *sizes, SHARE=_SHARE, KEPT=_KEPT, num_warps=_WARPS, **shape
    )
    floor_kernel[(rows,)](
        *row, state.min_p_S, bounds, kept, found, floors_R, *sizes, KEPT=_KEPT, COLUMNS=_COLUMNS,
        num_warps=_END_WARPS, **shape,
    )  # fmt: skip
    return floors_R
