"""GPU kernels that turn logits into scores: processors and temperature, then the floor of top-k, top-p and min-p."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl


@triton.jit
def score_kernel(
    logits_ptr, drafts_ptr, rows_ptr, scores_ptr, spoilt_ptr,
    generated_ptr, min_tokens_ptr, draft_limit_ptr, temperature_ptr, repetition_ptr, presence_ptr,
    frequency_ptr, penalised_ptr, biased_ptr, bias_ptr, seen_ptr, counts_ptr, stops_ptr, vocab, stop_count,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write z', or z' / T where a request samples; note tiles whose logits hold NaN or +inf."""
    program, tile = tl.program_id(0), tl.program_id(1)
    row, offset = program // WIDTH, program % WIDTH
    slot = tl.load(rows_ptr + row).to(tl.int64)
    token = tile * TILE + tl.arange(0, TILE)
    inside = token < vocab
    at = program.to(tl.int64) * vocab + token
    score = tl.load(logits_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
    spoilt = tl.sum(((score != score) | (score == float("inf"))).to(tl.int32), 0)
    tl.store(spoilt_ptr + program * tl.num_programs(1) + tile, spoilt)
    place = slot * vocab + token
    if tl.load(penalised_ptr + slot) != 0:
        count = tl.load(counts_ptr + place, mask=inside, other=0)
        known = offset > -1
        limit = tl.load(draft_limit_ptr + slot)
        for index in tl.static_range(WIDTH - 1):
            draft = tl.load(drafts_ptr + row * (WIDTH - 1) + index)
            known = known & (draft >= 0) & (index < offset) & (index < limit)
            count += (known & (token == draft)).to(tl.int32)
        seen = (count > 0) | (tl.load(seen_ptr + place, mask=inside, other=0) != 0)
        repetition = tl.load(repetition_ptr + slot)
        damped = tl.where(score > 0, score / repetition, score * repetition)
        score = tl.where(seen, damped, score)
        score -= tl.load(frequency_ptr + slot) * count.to(tl.float32)
        score -= tl.load(presence_ptr + slot) * (count > 0).to(tl.float32)
    if tl.load(biased_ptr + slot) != 0:
        score += tl.load(bias_ptr + place, mask=inside, other=0.0)
    if tl.load(generated_ptr + slot) + offset < tl.load(min_tokens_ptr + slot):
        for index in range(stop_count):
            score = tl.where(token == tl.load(stops_ptr + slot * stop_count + index), float("-inf"), score)
    temperature = tl.load(temperature_ptr + slot)
    score = tl.where(temperature > 0, score / tl.where(temperature > 0, temperature, 1.0), score)
    tl.store(scores_ptr + at, score, mask=inside)


@triton.jit
def _ordered(score):
    """Map float32 to int32 so that the order of the numbers is kept."""
    bits = score.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _amount(scores_ptr, vocab, least, weigh, above, best, TILE: tl.constexpr):
    """Count the scores whose key is at least `least`, or add the weights of those at least `above` too."""
    total = best * 0.0
    for first in range(0, vocab, TILE):
        token = first + tl.arange(0, TILE)
        score = tl.load(scores_ptr + token, mask=token < vocab, other=float("-inf"))
        key = _ordered(score).to(tl.int64)
        counts = (token < vocab) & (key >= least) & (key >= above)
        value = tl.where(weigh, tl.exp(score - best), 1.0)
        total += tl.sum(tl.where(counts, value, 0.0), 0)
    return total


@triton.jit
def _largest_key(scores_ptr, vocab, needed, weigh, above, best, TILE: tl.constexpr):
    """Return the largest key such that the scores at least as large still amount to `needed`, bit by bit."""
    key = tl.full((), -2147483648, tl.int64)
    for step in range(32):
        candidate = key + (tl.full((), 1, tl.int64) << (31 - step))
        enough = _amount(scores_ptr, vocab, candidate, weigh, above, best, TILE) >= needed
        key = tl.where(enough, candidate, key)
    return key


@triton.jit
def floor_kernel(
    scores_ptr, rows_ptr, floors_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, vocab,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the least score that a row may choose: -inf when nothing is left out."""
    program = tl.program_id(0)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    scores_ptr += program.to(tl.int64) * vocab
    top_k, top_p, min_p = tl.load(top_k_ptr + slot), tl.load(top_p_ptr + slot), tl.load(min_p_ptr + slot)
    floor = tl.full((), float("-inf"), tl.float32)
    cuts = (top_k > 0) | (top_p < 1) | (min_p > 0)
    if (tl.load(temperature_ptr + slot) > 0) & cuts:
        best = tl.full((), float("-inf"), tl.float32)
        for first in range(0, vocab, TILE):
            token = first + tl.arange(0, TILE)
            score = tl.load(scores_ptr + token, mask=token < vocab, other=float("-inf"))
            best = tl.maximum(best, tl.max(score, 0))
        lowest = tl.full((), -2147483648, tl.int64)
        key = lowest
        if top_k > 0:
            wanted = tl.minimum(top_k, vocab).to(tl.float32)
            key = _largest_key(scores_ptr, vocab, wanted, False, lowest, best, TILE)
        if top_p < 1:
            mass = _amount(scores_ptr, vocab, lowest, True, key, best, TILE)
            inner = _largest_key(scores_ptr, vocab, top_p * mass, True, key, best, TILE)
            key = tl.maximum(key, inner)
        key = tl.minimum(key, _ordered(best).to(tl.int64)).to(tl.int32)
        cut = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        floor = tl.where((top_k > 0) | (top_p < 1), cut, floor)
        floor = tl.where(min_p > 0, tl.maximum(floor, best + tl.log(min_p)), floor)
    tl.store(floors_ptr + program, floor)
