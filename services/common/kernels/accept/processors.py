"""Logit processors: penalties, bias, minimum length, mask; then top-k, top-p, min-p on the scaled scores.

Truncation keeps ties, so it does not depend on the order in which a sort meets equal scores: top-k keeps every score
not below the k-th largest; top-p keeps a score while the probability of all strictly larger ones is below p; min-p
keeps probabilities of at least min_p times the largest.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.common.kernels.accept.state import SlotState
from services.common.kernels.nodes import Tree

Array = NDArray[Any]


def process(logits_BWV: Array, drafts_BK: Array, tree: Tree, rows_B: Array, state: SlotState) -> Array:
    """Return z': the logits after penalties, bias, minimum length and mask, given the drafts above each row."""
    scores_BWV = logits_BWV
    penalised_B, biased_B = state.penalised_S.numpy()[rows_B], state.biased_S.numpy()[rows_B]
    early_B = state.generated_S.numpy()[rows_B] < state.min_tokens_S.numpy()[rows_B]
    masked_B = state.masked_S.numpy()[rows_B]
    if penalised_B.any() or biased_B.any() or early_B.any() or masked_B.any():
        scores_BWV = logits_BWV.copy()
    if penalised_B.any():
        scores_BWV[penalised_B] = _penalised(
            scores_BWV[penalised_B], drafts_BK[penalised_B], tree.parents_BK[penalised_B], rows_B[penalised_B], state
        )
    for index in np.flatnonzero(biased_B):
        scores_BWV[index] += state.bias_SV.numpy()[rows_B[index]]
    for index in np.flatnonzero(early_B):
        slot = rows_B[index]
        missing = int(state.min_tokens_S.numpy()[slot] - state.generated_S.numpy()[slot])
        stops = state.stop_ids_SM.numpy()[slot]
        early_W = np.flatnonzero(tree.depths_BW[index] < missing)
        scores_BWV[index][early_W[:, None], stops[stops >= 0]] = -np.inf
    for index in np.flatnonzero(masked_B):
        _mask(scores_BWV[index], state.mask_SWN.numpy()[rows_B[index]])
    return scores_BWV


def _mask(scores_WV: Array, mask_WN: Array) -> None:
    """Set to -inf, in place, what the masks do not allow."""
    width, vocab = scores_WV.shape
    bits_WV = np.unpackbits(mask_WN[:width].view(np.uint8), axis=1, count=vocab, bitorder="little")
    scores_WV[bits_WV == 0] = -np.inf


def _penalised(scores_BWV: Array, drafts_BK: Array, parents_BK: Array, rows_B: Array, state: SlotState) -> Array:
    """Apply repetition (prompt and output), then frequency and presence (output) penalties."""
    kind = scores_BWV.dtype
    repetition_B11, frequency_B11, presence_B11 = (
        parameter_S.numpy()[rows_B, None, None].astype(kind)
        for parameter_S in (state.repetition_penalty_S, state.frequency_penalty_S, state.presence_penalty_S)
    )
    counts_BWV = np.repeat(state.counts_SV.numpy()[rows_B, None], scores_BWV.shape[1], 1)
    lines_B = np.arange(len(rows_B))
    for row, draft_B in enumerate(drafts_BK.T, start=1):
        counts_BWV[:, row] = counts_BWV[lines_B, parents_BK[:, row - 1]]
        known = np.flatnonzero(draft_B >= 0)
        counts_BWV[known, row, draft_B[known]] += 1
    made_BWV = counts_BWV > 0
    seen_BWV = made_BWV | state.prompt_seen_SV.numpy()[rows_B, None]
    damped_BWV = np.where(scores_BWV > 0, scores_BWV / repetition_B11, scores_BWV * repetition_B11)
    scores_BWV = np.where(seen_BWV, damped_BWV, scores_BWV)
    scores_BWV -= frequency_B11 * counts_BWV.astype(kind)
    scores_BWV -= presence_B11 * made_BWV
    return scores_BWV


def truncate(scaled_BWV: Array, sampled_B: Array, rows_B: Array, state: SlotState) -> None:
    """Set to -inf, in place, what top-k, then top-p, then min-p leave out in the rows that sample."""
    top_k_B, top_p_B = state.top_k_S.numpy()[rows_B], state.top_p_S.numpy()[rows_B]
    sorting_B = sampled_B & ((top_k_B > 0) | (top_p_B < 1))
    if sorting_B.any():
        scaled_BWV[sorting_B] = _nucleus(scaled_BWV[sorting_B], top_k_B[sorting_B], top_p_B[sorting_B])
    min_p_B = np.where(sampled_B, state.min_p_S.numpy()[rows_B], 0)
    if (min_p_B > 0).any():
        with np.errstate(divide="ignore"):
            margin_B11 = np.log(min_p_B[:, None, None].astype(scaled_BWV.dtype))
        scaled_BWV[scaled_BWV < scaled_BWV.max(-1, keepdims=True) + margin_B11] = -np.inf


def _nucleus(scores_RWV: Array, top_k_R: Array, top_p_R: Array) -> Array:
    vocab = scores_RWV.shape[-1]
    sorted_RWV = -np.sort(-scores_RWV, axis=-1)
    keep_R = np.where(top_k_R > 0, np.minimum(top_k_R, vocab), vocab)
    kth_RW1 = np.take_along_axis(sorted_RWV, keep_R[:, None, None] - 1, -1)
    weights_RWV = np.exp(sorted_RWV - sorted_RWV[..., :1])
    weights_RWV[sorted_RWV < kth_RW1] = 0
    mass_RWV = weights_RWV.cumsum(-1)
    before_RWV = mass_RWV - weights_RWV
    inside_RWV = before_RWV < top_p_R[:, None, None].astype(scores_RWV.dtype) * mass_RWV[..., -1:]
    inside_RWV |= (top_p_R >= 1)[:, None, None]
    inside_RWV &= sorted_RWV >= kth_RW1
    inside_RWV[..., 0] = True
    last_RW1 = inside_RWV.sum(-1, keepdims=True) - 1
    floor_RW1 = np.take_along_axis(sorted_RWV, last_RW1, -1)
    return np.where(scores_RWV < floor_RW1, -np.inf, scores_RWV)
