"""Which experts a row takes, and their weights: by a softmax over all, or by sigmoids and a bias."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl


@triton.jit
def softmax_of(logit_RE):
    """Return the greatest logit of each row and the sum of its powers, which is one of whole numbers."""
    best = tl.max(logit_RE, 1, keep_dims=True)
    total = tl.sum((tl.exp(logit_RE - best) * 1099511627776.0 + 0.5).to(tl.int64), 1, keep_dims=True)
    return best, total.to(tl.float32) * 9.094947017729282e-13


@triton.jit
def shares(logit, best, total, inside):
    """Return shares, and whole numbers in their order, whose best a warp finds in one instruction; outside is last.

    None is below zero, though a row with an infinite number may have such shares: -1 says that an expert is taken.
    """
    share = tl.exp(logit - best) / total
    return share, tl.where(inside, tl.where(share > 0.0, share, 0.0).to(tl.int32, bitcast=True), -1)


@triton.jit
def first_of(key, expert, COUNT_PAD: tl.constexpr):
    """Return the greatest whole number of each row, and the lowest expert that has it."""
    best = tl.max(key, 1, keep_dims=True)
    return best, tl.min(tl.where(key == best, expert, COUNT_PAD), 1, keep_dims=True)


@triton.jit
def best_experts(
    logit_RE, inside, expert, rank,
    ROWS: tl.constexpr, COUNT_PAD: tl.constexpr, TOP_K: tl.constexpr, TOP_PAD: tl.constexpr, RENORM: tl.constexpr,
):  # fmt: skip
    """Return of each row its experts by rank, their weights, and by expert: weights, ranks, and which are taken.

    The bits are those of a row alone. A row of NaN gets experts, too: its sums are NaN, and no place is beyond the end.
    """
    best, total = softmax_of(logit_RE)
    share, key = shares(logit_RE, best, total, inside)
    there = share == share
    chosen, weights = tl.zeros((ROWS, TOP_PAD), tl.int32), tl.zeros((ROWS, TOP_PAD), tl.float32)
    ranks, sum_R1 = tl.zeros((ROWS, COUNT_PAD), tl.int32), tl.zeros((ROWS, 1), tl.float32)
    for place in tl.static_range(TOP_K):
        best, one = first_of(key, expert, COUNT_PAD)
        weight = best.to(tl.float32, bitcast=True)
        chosen, weights = tl.where(rank == place, one, chosen), tl.where(rank == place, weight, weights)
        ranks, key = tl.where(expert == one, place, ranks), tl.where(expert == one, -1, key)
        sum_R1 += weight
    every = tl.where(share > 0.0, share, 0.0)
    if RENORM:
        weights, every = weights / sum_R1, every / sum_R1
    odd = odd_rows(there, inside)
    weights, every = tl.where(odd, float("nan"), weights), tl.where(odd, float("nan"), every)
    return chosen, weights, every, ranks, inside & (key == -1)


@triton.jit
def by_row(number_ptr, expert, inside, ROWS: tl.constexpr, COUNT_PAD: tl.constexpr):
    """Return a number of each expert, read anew for each row [R, E].

    Read once, it would draw the layout after it: a row would then lie in many warps, and each best would go among them.
    """
    number_at = number_ptr + tl.broadcast_to(expert, (ROWS, COUNT_PAD))
    return tl.load(number_at, mask=tl.broadcast_to(inside, (ROWS, COUNT_PAD)), other=0.0).to(tl.float32)


@triton.jit
def odd_rows(there, inside):
    """Return which rows have NaN among their experts [R, 1]."""
    return tl.max((inside & (there == 0)).to(tl.int32), 1, keep_dims=True) != 0


@triton.jit
def rated_experts(
    logit_RE, bias_RE, inside, expert, rank,
    ROWS: tl.constexpr, COUNT_PAD: tl.constexpr, TOP_K: tl.constexpr, TOP_PAD: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """Return the same where experts are rated by sigmoids, and a bias counts for the choice alone."""
    if CAP > 0.0:
        # tanh, of which both ends are finite.
        logit_RE = CAP * (1.0 - 2.0 / (tl.exp(logit_RE * (2.0 / CAP)) + 1.0))
    rate = 1.0 / (1.0 + tl.exp(-logit_RE))
    asked = rate + bias_RE
    there = asked == asked
    bits = (tl.where(there, asked, 0.0) + 0.0).to(tl.int32, bitcast=True)
    key = tl.where(inside, bits ^ ((bits >> 31) & 0x7FFFFFFF), -0x7FFFFFFF)
    rate = tl.where(there, rate, 0.0)
    # None is below zero, so that bits have the order of rates: a warp finds the greatest in one instruction.
    rate_bits = rate.to(tl.int32, bitcast=True)
    chosen, weights = tl.zeros((ROWS, TOP_PAD), tl.int32), tl.zeros((ROWS, TOP_PAD), tl.float32)
    ranks, sum_R1 = tl.zeros((ROWS, COUNT_PAD), tl.int32), tl.zeros((ROWS, 1), tl.float32)
    for place in tl.static_range(TOP_K):
        _, one = first_of(key, expert, COUNT_PAD)
        weight = tl.max(tl.where(expert == one, rate_bits, 0), 1, keep_dims=True).to(tl.float32, bitcast=True)
        chosen, weights = tl.where(rank == place, one, chosen), tl.where(rank == place, weight, weights)
        ranks, key = tl.where(expert == one, place, ranks), tl.where(expert == one, -0x7FFFFFFF, key)
        sum_R1 += weight
    odd = odd_rows(there, inside)
    weights, every = tl.where(odd, float("nan"), weights / sum_R1), tl.where(odd, float("nan"), rate / sum_R1)
    return chosen, weights, every, ranks, inside & (key == -0x7FFFFFFF)


@triton.jit
def chosen_experts(
    logit_RE, bias_RE, scale_ptr, inside, expert, rank,
    ROWS: tl.constexpr, COUNT_PAD: tl.constexpr, TOP_K: tl.constexpr, TOP_PAD: tl.constexpr, RENORM: tl.constexpr,
    CAP: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """Return what `best_experts` does, or with a bias `rated_experts`; weights times a factor and each expert's own.

    What lies by rank and what lies by expert are the same numbers: whoever asks for one of them does not pay for both.
    """
    if bias_RE is None:
        chosen, weights, every, ranks, taken = best_experts(
            logit_RE, inside, expert, rank, ROWS, COUNT_PAD, TOP_K, TOP_PAD, RENORM
        )
    else:
        chosen, weights, every, ranks, taken = rated_experts(
            logit_RE, bias_RE, inside, expert, rank, ROWS, COUNT_PAD, TOP_K, TOP_PAD, CAP
        )
    if scale_ptr is not None:
        weights *= tl.load(scale_ptr + chosen, mask=rank < TOP_K, other=0.0).to(tl.float32)
        every *= by_row(scale_ptr, expert, inside, ROWS, COUNT_PAD)
    if FACTOR != 1.0:
        weights, every = weights * FACTOR, every * FACTOR
    return chosen, weights, every, ranks, taken
