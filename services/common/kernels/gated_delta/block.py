"""The arithmetic of one block of 16 positions and one value head; README.md has its formulas."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import from_units
from services.common.kernels.gated_delta.halves import TILE_SCALE, halves

_BACK = tl.constexpr(1.0 / (1024.0 * 1024.0))


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
    """Return the inverse of 1 + a strictly lower triangle: blocks of two rows, then of twice as many each time.

    The inverse of a lower block triangle has -C^-1 B A^-1 below the inverses of its diagonal. C^-1 B is part of the
    product of these inverses with the whole triangle, so that B needs no tile of its own.
    """
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    solved = tl.where(row == column, 1.0, 0.0) - tl.where(row // 2 == column // 2, lower, 0.0)
    for level in tl.static_range(3):
        between = (row >> (1 + level)) == (column >> (1 + level)) + 1
        between = between & ((row >> (2 + level)) == (column >> (2 + level)))
        half = tl.where(between, tl.dot(solved, lower, input_precision="ieee"), 0.0)
        solved = tl.dot(-half, solved, solved, input_precision="ieee")
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
def product(x, tile_high, tile_low):
    """Return the product of 16 rows with a tile that was scaled, both of numbers of at most about 1."""
    high, low = halves(x * TILE_SCALE)
    # No product waits for another.
    return ((tl.dot(high, tile_low) + tl.dot(low, tile_high)) + tl.dot(high, tile_high)) * _BACK


@triton.jit
def loaded(state_ptr, place, there, K_DIM: tl.constexpr, V_DIM: tl.constexpr):
    """Return columns of a state [columns, Dk] whose first elements lie at `place`; zeros unless it is there."""
    at = place[:, None] + tl.arange(0, K_DIM)[None, :] * V_DIM
    there_too = tl.full(at.shape, 0, tl.int32) + there > 0
    return tl.load(state_ptr + at, mask=there_too, other=0.0)


@triton.jit
def store_state(state, state_ptr, place, K_DIM: tl.constexpr, V_DIM: tl.constexpr):
    """The reverse of `loaded`."""
    tl.store(state_ptr + place[:, None] + tl.arange(0, K_DIM)[None, :] * V_DIM, state)
