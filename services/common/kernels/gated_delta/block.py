"""The arithmetic of one block of 16 positions and one value head; README.md has its formulas."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import finite, from_units, sigmoid, sum_of_squares


@triton.jit
def decays(units):
    """Return the decay since the block's start [16], up to its end [16], and from row j to row i, zero above."""
    row = tl.arange(0, 16)
    below = row[:, None] >= row[None, :]
    total = tl.sum(tl.where(below, units[None, :], 0), 1)
    whole = tl.sum(units, 0)
    apart = from_units(total[:, None] - total[None, :])
    between = tl.exp(tl.where(below, apart, float("-inf")))
    return tl.exp(from_units(total)), tl.exp(from_units(whole - total)), between


@triton.jit
def inverse(lower):
    """Return the inverse of 1 + a strictly lower triangle: blocks of two rows, then of 4, 8 and 16.

    The inverse of a lower block triangle has -C^-1 B A^-1 below the inverses of its diagonal.
    """
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    solved = tl.where(row == column, 1.0, 0.0) - tl.where(row // 2 == column // 2, lower, 0.0)
    for level in tl.static_range(3):
        inner = (row >> (1 + level)) != (column >> (1 + level))
        between = tl.where(inner & ((row >> (2 + level)) == (column >> (2 + level))), lower, 0.0)
        half = tl.dot(solved, between, input_precision="ieee")
        solved = solved - tl.dot(half, solved, input_precision="ieee")
    return solved


@triton.jit
def coupled(gram, scores, beta, between):
    """Return the block's inverse, and what each row reads of each row's update.

    `gram` and `scores` are products of keys and of queries with keys; rows behind a row count as zero.
    """
    row = tl.arange(0, 16)
    lower = tl.where(row[:, None] > row[None, :], gram * between * beta[:, None], 0.0)
    reads = tl.where(row[:, None] >= row[None, :], scores * between, 0.0)
    return inverse(lower), reads


@triton.jit
def updates(k, v, beta, since, solved, state, PRECISION: tl.constexpr):
    """Return what each row adds along its key [16, columns]; values that are not finite count as zero."""
    held = tl.dot(k * since[:, None], state, input_precision=PRECISION)
    missing = (tl.where(finite(v), v, 0.0) - held) * beta[:, None]
    return tl.dot(solved, missing, input_precision=PRECISION)


@triton.jit
def read(q, v, since, reads, update, state, PRECISION: tl.constexpr):
    """Return what each row reads [16, columns]; NaN where its value is."""
    own = tl.dot(reads, update, input_precision=PRECISION)
    return tl.dot(q * since[:, None], state, input_precision=PRECISION) + own + v * 0.0


@triton.jit
def advanced(k, until, whole, update, state, PRECISION: tl.constexpr):
    """Return the state after the block."""
    return state * whole + tl.dot(tl.trans(k * until[:, None]), update, input_precision=PRECISION)


@triton.jit
def normed(out, z, weight, eps, V_DIM: tl.constexpr):
    """Return rows of a head divided by their root mean square, times the norm's weight and SiLU of z."""
    scale = tl.rsqrt(sum_of_squares(out) * (1.0 / V_DIM) + eps)
    return out * scale[:, None] * weight[None, :] * (z * sigmoid(z))
