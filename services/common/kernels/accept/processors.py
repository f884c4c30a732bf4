"""Logit processors: penalties, bias, minimum length; then top-k, top-p, min-p on the scaled scores.

Truncation keeps ties, so it does not depend on the order in which a sort meets equal scores: top-k keeps every score
not below the k-th largest; top-p keeps a score while the probability of all strictly larger ones is below p; min-p
keeps probabilities of at least min_p times the largest.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.common.kernels.accept.state import SlotState

Array = NDArray[Any]


def process(logits_BWV: Array, drafts_BK: Array, rows_B: Array, state: SlotState) -> Array:
    """Return z': the logits after penalties, bias and the minimum length, given the drafts before each row."""
    scores_BWV = logits_BWV
    penalised_B, biased_B = state.penalised_S.numpy()[rows_B], state.biased_S.numpy()[rows_B]
    early_B = state.generated_S.numpy()[rows_B] < state.min_tokens_S.numpy()[rows_B]
    if penalised_B.any() or biased_B.any() or early_B.any():
        scores_BWV = logits_BWV.copy()
    for index in np.flatnonzero(penalised_B):
        _penalise(scores_BWV[index], drafts_BK[index], int(rows_B[index]), state)
    for index in np.flatnonzero(biased_B):
        scores_BWV[index] += state.bias_SV.numpy()[rows_B[index]]
    for index in np.flatnonzero(early_B):
        slot = rows_B[index]
        missing = int(state.min_tokens_S.numpy()[slot] - state.generated_S.numpy()[slot])
        stops = state.stop_ids_SM.numpy()[slot]
        scores_BWV[index][:missing, stops[stops >= 0]] = -np.inf
    return scores_BWV


def _penalise(scores_WV: Array, drafts_K: Array, slot: int, state: SlotState) -> None:
    """Apply repetition (prompt and output), then frequency and presence (output) penalties to one request's rows."""
    kind = scores_WV.dtype.type
    counts_WV = np.repeat(state.counts_SV.numpy()[slot][None], len(scores_WV), 0)
    for offset, token in enumerate(drafts_K):
        if token < 0:
            break
        counts_WV[offset + 1 :, token] += 1
    made_WV = counts_WV > 0
    repetition = kind(state.repetition_S.numpy()[slot])
    if repetition != 1:
        seen_WV = made_WV | state.prompt_seen_SV.numpy()[slot]
        damped_WV = np.where(scores_WV > 0, scores_WV / repetition, scores_WV * repetition)
        np.copyto(scores_WV, damped_WV, where=seen_WV)
    scores_WV -= kind(state.frequency_S.numpy()[slot]) * counts_WV.astype(kind)
    scores_WV -= kind(state.presence_S.numpy()[slot]) * made_WV


def truncate(scaled_BWV: Array, sampled_B1: Array, rows_B: Array, state: SlotState) -> None:
    """Set to -inf, in place, what top-k, then top-p, then min-p leave out."""
    sampled_B = sampled_B1[:, 0] > 0
    top_k_B, top_p_B = state.top_k_S.numpy()[rows_B], state.top_p_S.numpy()[rows_B]
    sorting_B = sampled_B & ((top_k_B > 0) | (top_p_B < 1))
    if sorting_B.any():
        scaled_BWV[sorting_B] = _nucleus(scaled_BWV[sorting_B], top_k_B[sorting_B], top_p_B[sorting_B])
    min_p_B = state.min_p_S.numpy()[rows_B]
    for index in np.flatnonzero(sampled_B & (min_p_B > 0)):
        scores_WV = scaled_BWV[index]
        floor_W1 = scores_WV.max(-1, keepdims=True) + np.log(min_p_B[index].astype(scores_WV.dtype))
        scores_WV[scores_WV < floor_W1] = -np.inf


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
