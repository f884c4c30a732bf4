"""Accept in torch and numpy."""

from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.common.device.noise import gumbel_array
from services.common.kernels.accept.processors import process, truncate
from services.common.kernels.accept.state import End, RoundResult, SlotState
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.nodes import Nodes, Tree
from services.common.kernels.nodes import walk as walk_trees
from services.common.kernels.row_table import RowTable

Mode = Literal["greedy", "full"]
LAST_BITS = 0x7FFFFFFF
"""Of a round's number, beside a token in a word."""
Array = NDArray[Any]


def accept(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rows_B: Tensor,
    state: SlotState,
    result: RoundResult,
    noise_BWV: Tensor | None = None,
    mode: Mode = "full",
    nodes: Nodes | None = None,
    table: RowTable | None = None,
) -> None:
    """Choose, accept and commit for every row of a round.

    Args:
        logits_BWV: raw logits, float32 or wider on the CPU, float32 or bfloat16 on a GPU; row j predicts position
            length + 1 + j.
        drafts_BK: drafts after the anchor, K = W - 1; -1 where there is none.
        rows_B: slot of each row; inactive slots (the pad slot among them) commit nothing and stay untouched.
        state: of all slots; length, anchor, generated, counts, history and active move.
        result: receives what was committed, row by row.
        noise_BWV: Gumbel noise, for the CPU path only; made from state's seeds when None and some row samples. The
            GPU path makes its own, in float32.
        mode: "greedy" when every row is plainly greedy (no temperature, no processor, no mask); "full" is always right.
        nodes: trees that the rows are; chains without.
        table: where logits are of the rows of pieces [P, G, V]; drafts behind a sequence's rows are not offered.
    """
    if table is not None:
        logits_BWV = logits_BWV.flatten(0, 1)[table.rows_of(drafts_BK.shape[1] + 1)]
    logits, drafts, rows = logits_BWV.numpy(), drafts_BK.numpy(), rows_B.numpy()
    tree = _chains(*drafts.shape) if nodes is None else nodes.host
    most_B1 = state.draft_limit_S.numpy()[rows, None]
    if table is not None:
        most_B1 = np.minimum(most_B1, table.takes_B.numpy()[:, None] - 1)
    drafts = np.where(tree.depths_BW[:, 1:] <= most_B1, drafts, -1)
    if mode == "greedy":
        chosen_BW = logits.argmax(-1)
        sane_BW = np.isfinite(np.take_along_axis(logits, chosen_BW[..., None], -1)[..., 0])
    else:
        with np.errstate(invalid="ignore"):
            noise = None if noise_BWV is None else noise_BWV.numpy()
            chosen_BW, sane_BW = _choose(logits, drafts, tree, rows, state, noise)
    right_BK = _right(chosen_BW, drafts, tree, rows, state)
    if result.path_BW is None:
        accepted_B = np.logical_and.accumulate(right_BK, axis=1).sum(1)
    else:
        path_BW = result.path_BW.numpy()
        accepted_B = walk_trees(right_BK, tree, path_BW)
        chosen_BW, sane_BW = chosen_BW[tree.lines_B1, path_BW], sane_BW[tree.lines_B1, path_BW]
    result.drafted_B.numpy()[:] = np.where(state.active_S.numpy()[rows], (drafts >= 0).sum(1), 0)
    _commit(chosen_BW, sane_BW, accepted_B, rows, state, result)


@cache
def _chains(batch: int, count: int) -> Tree:
    """Return rows of which each follows the one before: those of rounds without nodes."""
    rows_BW = np.broadcast_to(np.arange(count + 1), (batch, count + 1))
    return Tree(rows_BW[:, :-1], rows_BW, np.arange(batch)[:, None])


def _right(chosen_BW: Array, drafts_BK: Array, tree: Tree, rows_B: Array, state: SlotState) -> Array:
    """Return which drafts are what the rows that they follow chose [B, K].

    Of a masked row only those that its masks were made for, in their order: the tree may have changed since.
    """
    right_BK: Array = drafts_BK == chosen_BW[tree.lines_B1, tree.parents_BK]
    for index in np.flatnonzero(state.masked_S.numpy()[rows_B]):
        walked_K = state.walked_SK.numpy()[rows_B[index], : drafts_BK.shape[1]]
        right_BK[index] &= drafts_BK[index] == walked_K
        path = np.flatnonzero(walked_K >= 0)
        right_BK[index, path] &= tree.parents_BK[index, path] == np.append(0, path[:-1] + 1)[: len(path)]
    return right_BK


def _choose(
    logits_BWV: Array, drafts_BK: Array, tree: Tree, rows_B: Array, state: SlotState, noise_BWV: Array | None
) -> tuple[Array, Array]:
    """Return the tokens y [B, W] and whether each came from finite numbers."""
    scores_BWV = process(logits_BWV, drafts_BK, tree, rows_B, state)
    return _best(logits_BWV, scores_BWV, tree.depths_BW, rows_B, state, noise_BWV)


def _best(
    logits_BWV: Array, scores_BWV: Array, depths_BW: Array, rows_B: Array, state: SlotState, noise_BWV: Array | None
) -> tuple[Array, Array]:
    """Return the tokens [B, W] of the best scores, with noise, and whether each came from finite numbers."""
    finite_BW = np.isfinite(logits_BWV.max(-1))
    temperature_B = state.temperature_S.numpy()[rows_B]
    sampled_B = temperature_B > 0
    if sampled_B.any():
        divisor_B = np.where(sampled_B, temperature_B, 1).astype(scores_BWV.dtype)
        scaled_BWV = scores_BWV / divisor_B[:, None, None]
        truncate(scaled_BWV, sampled_B, rows_B, state)
        if noise_BWV is None:
            positions_BW = state.length_S.numpy()[rows_B, None] + 1 + depths_BW
            noise_BWV = gumbel_array(state.seed_S.numpy()[rows_B], positions_BW, logits_BWV.shape[2], logits_BWV.dtype)
        scores_BWV = np.where(sampled_B[:, None, None], scaled_BWV + noise_BWV, scores_BWV)
    chosen_BW = scores_BWV.argmax(-1)
    best_BW = np.take_along_axis(scores_BWV, chosen_BW[..., None], -1)[..., 0]
    return chosen_BW, finite_BW & np.isfinite(best_BW)


def peek(
    logits_BWV: Tensor,
    rows_B: Tensor,
    state: SlotState,
    number_1: Tensor,
    told_SW: Tensor,
    noise_BWV: Tensor | None = None,
    nodes: Nodes | None = None,
) -> None:
    """Tell what rows of masked, unfiltered slots choose where no mask is; nothing of other rows.

    Args:
        logits_BWV: raw logits, as `accept` reads them.
        rows_B: slot of each row.
        state: of all slots; it is not changed.
        number_1: the round, int64.
        told_SW: receives (round << 32 | token) of each row, the round by its last 31 bits; a token is -1 where scores
            are not finite. It may be memory of the host that a GPU writes: each word is whole.
        noise_BWV: as `accept` takes it.
        nodes: trees that the rows are; chains without.
    """
    rows = rows_B.numpy()
    some = np.flatnonzero((state.masked_S & state.unfiltered_S).numpy()[rows])
    if len(some) == 0:
        return
    logits, (batch, width, _) = logits_BWV.numpy()[some], logits_BWV.shape
    depths_BW = (_chains(batch, width - 1) if nodes is None else nodes.host).depths_BW[some]
    noise = None if noise_BWV is None else noise_BWV.numpy()[some]
    with np.errstate(invalid="ignore"):
        chosen_BW, sane_BW = _best(logits, logits, depths_BW, rows[some], state, noise)
    stamp = (int(number_1) & LAST_BITS) << 32
    told_SW.numpy()[rows[some], :width] = stamp | (np.where(sane_BW, chosen_BW, -1) & 0xFFFFFFFF)


def _commit(
    chosen_BW: Array, sane_BW: Array, accepted_B: Array, rows_B: Array, state: SlotState, result: RoundResult
) -> None:
    """Commit the tokens [B, W] that the rows on the accepted path chose, and those of its end, in order of depth."""
    offsets_W = np.arange(chosen_BW.shape[1])
    reached_BW = offsets_W <= accepted_B[:, None]
    length_B, generated_B = state.length_S.numpy()[rows_B], state.generated_S.numpy()[rows_B]
    code_BW = _end_codes(chosen_BW, sane_BW, rows_B, state, offsets_W, length_B, generated_B)
    ends_BW = reached_BW & (code_BW != End.NONE)
    ended_B = ends_BW.any(1)
    last_B = np.where(ended_B, ends_BW.argmax(1), accepted_B)
    end_B = np.where(ended_B, code_BW[np.arange(len(rows_B)), last_B], End.NONE)
    active_B = state.active_S.numpy()[rows_B]
    count_B = np.where(active_B, last_B + (end_B != End.NON_FINITE), 0)
    kept_BW = offsets_W < count_B[:, None]
    _advance(chosen_BW, kept_BW, count_B, rows_B, state, length_B, generated_B)
    state.active_S.numpy()[rows_B] = active_B & ~ended_B
    result.tokens_BW.numpy()[:] = np.where(kept_BW, chosen_BW, -1)
    result.count_B.numpy()[:] = count_B
    result.accepted_B.numpy()[:] = np.minimum(accepted_B, count_B)
    result.end_B.numpy()[:] = np.where(active_B, end_B, End.NONE)


def _end_codes(
    chosen_BW: Array, sane_BW: Array, rows_B: Array, state: SlotState, offsets_W: Array, length_B: Array, made_B: Array
) -> Array:
    """Return why a request would end with each token, were it committed: non-finite > stop > length > context."""
    stops_B1M = state.stop_ids_SM.numpy()[rows_B, None]
    stop_BW = (chosen_BW[..., None] == stops_B1M).any(-1)
    full_BW = made_B[:, None] + offsets_W + 1 >= state.max_tokens_S.numpy()[rows_B, None]
    context_BW = length_B[:, None] + offsets_W + 2 >= state.limit_S.numpy()[rows_B, None]
    code_BW = np.where(context_BW, End.CONTEXT, End.NONE)
    code_BW[full_BW] = End.LENGTH
    code_BW[stop_BW] = End.STOP_TOKEN
    code_BW[~sane_BW] = End.NON_FINITE
    return code_BW


def _advance(
    chosen_BW: Array, kept_BW: Array, count_B: Array, rows_B: Array, state: SlotState, length_B: Array, made_B: Array
) -> None:
    """Move the sequences of the committing rows; no other slot is written."""
    moving = np.flatnonzero(count_B)
    if len(moving) == 0:
        return
    slots, counts = rows_B[moving], count_B[moving]
    state.length_S.numpy()[slots] = length_B[moving] + counts
    state.generated_S.numpy()[slots] = made_B[moving] + counts
    state.anchor_S.numpy()[slots] = chosen_BW[moving, counts - 1]
    row_E, offset_E = np.nonzero(kept_BW)
    slot_E, token_E = rows_B[row_E], chosen_BW[row_E, offset_E]
    history_SC = state.history_SC.numpy()
    position_E = length_B[row_E] + 1 + offset_E
    stored_E = position_E < history_SC.shape[1]
    history_SC[slot_E[stored_E], position_E[stored_E]] = token_E[stored_E]
    np.add.at(state.counts_SV.numpy(), (slot_E, token_E), 1)


def logprobs(logits_BWV: Tensor, tokens_BW: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities of the raw logits: of the chosen tokens [B, W], and the `top` ids and values [B, W, n].

    Tokens below 0 (padding of a round's result) are read as token 0. On a GPU equal logits are listed by id.
    """
    if on_kernel(logits_BWV) and logits_BWV.dtype != torch.float64:
        from services.common.kernels.accept import logprob

        return logprob.logprobs(logits_BWV, tokens_BW, top)
    wide = torch.float64 if logits_BWV.dtype == torch.float64 else torch.float32
    log_BWV = torch.log_softmax(logits_BWV, -1, dtype=wide)
    chosen_BW = log_BWV.gather(-1, tokens_BW.clamp(min=0)[..., None])[..., 0]
    values_BWn, ids_BWn = log_BWV.topk(top, -1)
    return chosen_BW, ids_BWn, values_BWn
