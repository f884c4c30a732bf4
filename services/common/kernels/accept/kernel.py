"""Choose, accept and commit on the GPU.

Greedy rounds take two launches; others compute scores and search a floor first.

Bytes for R = B W rows: greedy rounds read R V e once. Others read logits, write and read scores (`R V (e + 8)`), and
read the scores at most three times more where top-k or top-p cut. Only some rows are scored at a time, because scores
take twice the memory of their logits.
"""

from typing import Literal

import torch
import triton
from torch import Tensor

from services.common.kernels.accept.choices import SHARES, peek_kernel, told_kernel
from services.common.kernels.accept.choose import best_kernel, commit_kernel
from services.common.kernels.accept.floor import floors
from services.common.kernels.accept.greedy import GREEDY_TILE, greedy_kernel
from services.common.kernels.accept.reference import LAST_BITS
from services.common.kernels.accept.scores import PEAK_TILE, UNFUSED, score_kernel
from services.common.kernels.accept.scratch import SCORED_ROWS
from services.common.kernels.accept.state import RoundResult, SlotState
from services.common.kernels.nodes import Nodes
from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.row_table import RowTable

_SCORE_WARPS = 8
"""A program loads values of its row one after the other; more warps on a multiprocessor fill the waits."""


def accept(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rows_B: Tensor,
    state: SlotState,
    result: RoundResult,
    noise_BWV: Tensor | None = None,
    mode: Literal["greedy", "full"] = "full",
    nodes: Nodes | None = None,
    table: RowTable | None = None,
) -> None:
    """Choose, accept and commit for every row of a round; the noise is made in place, and none is taken."""
    assert logits_BWV.dtype in (torch.float32, torch.bfloat16), "the kernel takes float32 or bfloat16 logits"
    assert logits_BWV.is_contiguous(), "logits must be contiguous"
    batch, width, vocab = logits_BWV.shape
    most = width if table is None else drafts_BK.shape[1] + 1
    drafts_BK = drafts_BK.contiguous() if most > 1 else rows_B
    offsets_P, lines_P, firsts_B, takes_B = _pieces(table)
    if mode == "greedy":
        values, choices = _greedy(logits_BWV.view(-1, vocab))
    else:
        values, choices = _room(batch * width, triton.cdiv(vocab, PEAK_TILE), logits_BWV.device)
        together = max(1, SCORED_ROWS // width)
        for first in range(0, batch, together):
            some, flat = slice(first, first + together), slice(first * width, (first + together) * width)
            if table is not None and offsets_P is not None and lines_P is not None:
                places, drafts, seats = (lines_P[some], offsets_P[some]), drafts_BK, table.seats_P[some]
                each = None, None, *places
            else:
                drafts, seats = drafts_BK[some], rows_B[some]
                grown = (None, None) if nodes is None else (nodes.depths_BW[some], nodes.ancestors_BW[some])
                each = *grown, None, None
            _best_of_scores(logits_BWV[some], drafts, seats, state, values[flat], choices[flat], most - 1, each)
    stop_count, tiles = state.stop_ids_SM.shape[1], values.shape[1]
    commit_kernel[(len(rows_B),)](
        values, choices, drafts_BK, rows_B, state.length_S, state.anchor_S, state.active_S.view(torch.uint8),
        state.generated_S, state.max_tokens_S, state.limit_S, state.draft_limit_S, state.counts_SV, state.stop_ids_SM,
        state.history_SC, state.masked_S.view(torch.uint8), state.walked_SK, result.tokens_BW, result.count_B,
        result.accepted_B, result.drafted_B, result.end_B, *_tree(nodes, result), firsts_B, takes_B, vocab,
        state.history_SC.shape[1], tiles, stop_count, state.walked_SK.shape[1], WIDTH=most,
        WIDTH_PAD=triton.next_power_of_2(most),
        TILES_PAD=triton.next_power_of_2(tiles), STOPS_PAD=triton.next_power_of_2(stop_count), PDL=PDL, **LAUNCH,
    )  # fmt: skip


def peek(
    logits_BWV: Tensor,
    rows_B: Tensor,
    state: SlotState,
    number_1: Tensor,
    told_SW: Tensor,
    noise_BWV: Tensor | None = None,
    nodes: Nodes | None = None,
) -> None:
    """Tell what masked rows choose where no mask is; other rows cost two programs that end at once."""
    assert logits_BWV.is_contiguous(), "logits must be contiguous"
    batch, width, vocab = logits_BWV.shape
    values, tokens = _room(batch * width, SHARES, logits_BWV.device)
    depths_BW = None if nodes is None else nodes.depths_BW
    each = triton.cdiv(triton.cdiv(vocab, PEAK_TILE), SHARES)
    peek_kernel[values.shape](
        logits_BWV, rows_B, values, tokens, **state.columns(peek_kernel), depths_ptr=depths_BW, vocab=vocab, each=each,
        WIDTH=width, TILE=PEAK_TILE, **UNFUSED,
    )  # fmt: skip
    told_kernel[(batch * width,)](
        values, tokens, rows_B, **state.columns(told_kernel), number_ptr=number_1, told_ptr=told_SW,
        most=told_SW.shape[1], WIDTH=width, SHARES=SHARES, LAST_BITS=LAST_BITS, **UNFUSED,
    )  # fmt: skip


def _pieces(table: RowTable | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Where rows of pieces lie, and those of sequences."""
    if table is None:
        return None, None, None, None
    return table.offsets_P, table.lines_P, table.firsts_B, table.takes_B


def _tree(nodes: Nodes | None, result: RoundResult) -> tuple[Tensor | None, ...]:
    """What the walk along trees reads, and its path."""
    if nodes is None:
        return None, None, None, None
    assert result.path_BW is not None, "a round of trees has paths"
    return nodes.parents_BK, nodes.depths_BW, nodes.ancestors_BW, result.path_BW


def _room(rows: int, tiles: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Memory for scores and tokens of tiles."""
    values = torch.empty((rows, tiles), dtype=torch.float32, device=device)
    return values, torch.empty((rows, tiles), dtype=torch.int32, device=device)


def _greedy(logits_RV: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best score of every tile, and its token."""
    rows, vocab = logits_RV.shape
    values, tokens = _room(rows, triton.cdiv(vocab, GREEDY_TILE), logits_RV.device)
    greedy_kernel[tuple(values.shape)](
        logits_RV, values, tokens, vocab, TILE=GREEDY_TILE, WIDE=logits_RV.dtype == torch.float32, PDL=PDL, **LAUNCH
    )
    return values, tokens


def _best_of_scores(
    logits_BWV: Tensor, drafts_BK: Tensor, rows_B: Tensor, state: SlotState, values: Tensor, choices: Tensor,
    count: int, places: tuple[Tensor | None, ...],
) -> None:  # fmt: skip
    """Write the best token of every tile of some rows, among those that their requests leave, with noise.

    They have so many drafts; `places` are depths and ancestors of nodes, lines and offsets of pieces.
    """
    width, vocab = logits_BWV.shape[1:]
    scores = torch.empty(logits_BWV.shape, dtype=torch.float32, device=logits_BWV.device)
    peaks = torch.empty_like(values)
    depths_BW, ancestors_BW, lines_P, offsets_P = places
    score_kernel[values.shape](
        logits_BWV, drafts_BK, rows_B, scores, peaks, state.bias_SV, state.prompt_seen_SV.view(torch.uint8),
        state.counts_SV, state.stop_ids_SM, state.mask_SWN, vocab, state.stop_ids_SM.shape[1], state.mask_SWN.shape[2],
        state.mask_SWN.shape[1], **state.columns(score_kernel), depths_ptr=depths_BW, ancestors_ptr=ancestors_BW,
        lines_ptr=lines_P, offsets_ptr=offsets_P, WIDTH=width, DRAFTS=count,
        DRAFTS_PAD=triton.next_power_of_2(count + 1), TILE=PEAK_TILE, num_warps=_SCORE_WARPS, **UNFUSED,
    )  # fmt: skip
    floors_R = floors(scores.view(-1, vocab), peaks, rows_B, state, width)
    best_kernel[values.shape](
        scores, peaks, rows_B, floors_R, values, choices, state.length_S, state.seed_S, state.temperature_S, depths_BW,
        offsets_P, vocab, WIDTH=width, TILE=PEAK_TILE, **UNFUSED,
    )  # fmt: skip
