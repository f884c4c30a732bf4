"""The GPU kernel that turns logits into scores: processors and temperature."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED

PEAK_TILE = 128 if INTERPRETED else 2048
"""Scores that share a peak."""
UNFUSED = {"enable_fp_fusion": False}
"""Options of a launch whose sums are rounded alike in the variants for every width: none is fused with a product."""


@triton.jit
def _with_drafts(count, token, drafts_ptr, offset, limit, DRAFTS: tl.constexpr):
    """Count the drafts before an offset, up to the first that is none, as tokens of the output."""
    known = offset > -1
    for index in range(DRAFTS):
        draft = tl.load(drafts_ptr + index)
        known = known & (draft >= 0) & (index < offset) & (index < limit)
        count += (known & (token == draft)).to(tl.int32)
    return count


@triton.jit
def _with_path(count, token, drafts_ptr, depths_ptr, bits, limit, DRAFTS: tl.constexpr):
    """Count the drafts that a row of a tree descends from, and its own, as tokens of the output."""
    for row in range(1, DRAFTS + 1):
        draft = tl.load(drafts_ptr + row - 1)
        known = ((bits >> row) & 1 != 0) & (draft >= 0) & (tl.load(depths_ptr + row) <= limit)
        count += (known & (token == draft)).to(tl.int32)
    return count


@triton.jit
def _place(program, lines_ptr, offsets_ptr, WIDTH: tl.constexpr):
    """Return the sequence of a row and its place among the sequence's; `lines` and `offsets` are those of pieces."""
    row, offset = program // WIDTH, program % WIDTH
    if lines_ptr is not None:
        offset += tl.load(offsets_ptr + row)
        row = tl.load(lines_ptr + row)
    return row, offset


@triton.jit
def score_kernel(
    logits_ptr, drafts_ptr, rows_ptr, scores_ptr, peaks_ptr, bias_ptr, seen_ptr, counts_ptr, stops_ptr, masks_ptr,
    vocab, stop_count, words, mask_rows, generated_ptr, min_tokens_ptr, draft_limit_ptr, penalised_ptr, biased_ptr,
    masked_ptr, temperature_ptr, repetition_penalty_ptr, presence_penalty_ptr, frequency_penalty_ptr, depths_ptr,
    ancestors_ptr, lines_ptr, offsets_ptr,
    WIDTH: tl.constexpr, DRAFTS: tl.constexpr, DRAFTS_PAD: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write z', or z' / T where a request samples, and a tile's highest.

    What is NaN or +inf becomes NaN, and its tile's highest +inf. Rows of pieces have `lines`, whose drafts these are.
    """
    program, tile = tl.program_id(0), tl.program_id(1)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    row, offset = _place(program, lines_ptr, offsets_ptr, WIDTH)
    token = tile * TILE + tl.arange(0, TILE)
    inside = token < vocab
    at = program.to(tl.int64) * vocab + token
    score = tl.load(logits_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
    spoilt = (score != score) | (score == float("inf"))
    place = slot * vocab + token
    if tl.load(penalised_ptr + slot) != 0:
        count = tl.load(counts_ptr + place, mask=inside, other=0)
        limit, index = tl.load(draft_limit_ptr + slot), tl.arange(0, DRAFTS_PAD)
        draft = tl.load(drafts_ptr + row * DRAFTS + index, mask=index < DRAFTS, other=-1)
        # Most tiles hold no draft.
        if tl.max((draft // TILE == tile).to(tl.int32), 0) > 0:
            if ancestors_ptr is not None:
                bits, depths_of = tl.load(ancestors_ptr + program), depths_ptr + row * WIDTH
                count = _with_path(count, token, drafts_ptr + row * DRAFTS, depths_of, bits, limit, DRAFTS)
            else:
                count = _with_drafts(count, token, drafts_ptr + row * DRAFTS, offset, limit, DRAFTS)
        repetition = tl.load(repetition_penalty_ptr + slot)
        if repetition != 1:
            seen = (count > 0) | (tl.load(seen_ptr + place, mask=inside, other=0) != 0)
            damped = tl.where(score > 0, score / repetition, score * repetition)
            score = tl.where(seen, damped, score)
        score -= tl.load(frequency_penalty_ptr + slot) * count.to(tl.float32)
        score -= tl.load(presence_penalty_ptr + slot) * (count > 0).to(tl.float32)
    if tl.load(biased_ptr + slot) != 0:
        score += tl.load(bias_ptr + place, mask=inside, other=0.0)
    depth = offset if depths_ptr is None else tl.load(depths_ptr + program)
    if tl.load(generated_ptr + slot) + depth < tl.load(min_tokens_ptr + slot):
        for index in range(stop_count):
            score = tl.where(token == tl.load(stops_ptr + slot * stop_count + index), float("-inf"), score)
    if tl.load(masked_ptr + slot) != 0:
        word = tl.load(masks_ptr + (slot * mask_rows + offset) * words + token // 32, mask=inside, other=0)
        score = tl.where((word >> (token % 32)) & 1 != 0, score, float("-inf"))
    temperature = tl.load(temperature_ptr + slot)
    if temperature > 0:
        score = score / temperature
    tl.store(scores_ptr + at, tl.where(spoilt, float("nan"), score), mask=inside)
    highest = tl.max(tl.where(inside, tl.where(spoilt, float("inf"), score), float("-inf")), 0)
    tl.store(peaks_ptr + program * tl.num_programs(1) + tile, highest)
