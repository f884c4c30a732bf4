"""The floor of top-k, top-p and min-p on the GPU, without a sort: two passes of sums, one that gathers, and an end.

Each pass of sums divides by sixteen the interval that may hold the threshold. A third pass gathers the scores that are
left in it, and one program a row finds the threshold among them. Every sum is taken over fixed tiles by fixed warps, so
its bits depend on the row and the vocabulary alone. Cost for R rows: 4 R V bytes a pass, in at most three passes.
"""

import torch
import triton
from torch import Tensor

from services.common.kernels.accept.passes import gather_kernel, sum_kernel
from services.common.kernels.accept.scores import PEAK_TILE, UNFUSED
from services.common.kernels.accept.settle import begin_kernel, narrow_kernel
from services.common.kernels.accept.state import SlotState
from services.common.kernels.accept.threshold import floor_kernel
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.pdl import LAUNCH, PDL

_SHARE = 2
_TILE = _SHARE * PEAK_TILE
_CHUNK, _SUM_WARPS, _WARPS = 128, 1, 4
"""Scores that are added up at a time, and by how many warps.

They decide the order of a sum, so they are the same for any number of rows. With more warps a chunk, each warp would
compute all weights again for its edges.
"""
_KEPT = 8 if INTERPRETED else 128
"""Scores that a tile can gather: enough for all of an interval, unless most of the row has nearly equal scores."""
_COLUMNS = 8 if INTERPRETED else 32
_END_WARPS = 16


def floors(scores: Tensor, peaks: Tensor, rows_B: Tensor, state: SlotState, width: int) -> Tensor:
    """Return the least score [R] that each row may choose, -inf where nothing is left out.

    `scores` are [R, V] for R = B * width rows, `peaks` the highest of every PEAK_TILE of them.
    """
    rows, vocab = scores.shape
    tiles, pieces, device = triton.cdiv(vocab, _TILE), peaks.shape[1], scores.device
    floors_R = torch.empty(rows, dtype=torch.float32, device=device)
    amounts = torch.empty((rows, tiles, 16), dtype=torch.float32, device=device)
    edges, bounds = torch.empty((rows, 16), device=device), torch.empty((rows, 8), device=device)
    kept = torch.empty((rows, pieces, _KEPT), dtype=torch.float32, device=device)
    found = torch.empty((rows, pieces), dtype=torch.int32, device=device)
    chain = {"PDL": PDL, **UNFUSED, **LAUNCH}
    row = {"WIDTH": width, **chain}
    begin_kernel[(rows,)](
        peaks, rows_B, edges, bounds, vocab, pieces,
        PEAKS_PAD=triton.next_power_of_2(pieces), **state.columns(begin_kernel), **row,
    )  # fmt: skip
    for last in (False, True):
        sum_kernel[(rows, tiles)](
            scores, peaks, amounts, edges, bounds, vocab, tiles, pieces,
            TILE=_TILE, CHUNK=_CHUNK, SHARE=_SHARE, num_warps=_SUM_WARPS, **chain,
        )  # fmt: skip
        narrow_kernel[(rows,)](
            rows_B, amounts, edges, bounds, tiles,
            TILES_PAD=triton.next_power_of_2(tiles), LAST=last, **state.columns(narrow_kernel), **row,
        )  # fmt: skip
    gather_kernel[(rows, pieces)](
        scores, peaks, bounds, kept, found, vocab, TILE=PEAK_TILE, KEPT=_KEPT, num_warps=_WARPS, **chain
    )
    floor_kernel[(rows,)](
        scores, rows_B, bounds, kept, found, floors_R, vocab, pieces,
        TILE=PEAK_TILE, TILES_PAD=triton.next_power_of_2(pieces), KEPT=_KEPT, COLUMNS=_COLUMNS,
        num_warps=_END_WARPS, **state.columns(floor_kernel), **row,
    )  # fmt: skip
    return floors_R
