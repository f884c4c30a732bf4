"""The arithmetic of one block of 16 positions and one value head; README.md has its formulas."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs, disable-error-code=assignment

import triton
import triton.language as tl

from services.common.kernels.gated_delta.arithmetic import finite, from_squares, from_units, sigmoid, squares


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
def product(rows, keys, PIECES: tl.constexpr, PRECISION: tl.constexpr):
    """Return the products of each of 16 rows with each key, piece after piece."""
    total = tl.dot(rows[0], tl.trans(keys[0]), input_precision=PRECISION)
    for index in tl.static_range(1, PIECES):
        total = tl.dot(rows[index], tl.trans(keys[index]), total, input_precision=PRECISION)
    return total


@triton.jit
def met(q, k, since, state, PIECES: tl.constexpr, PRECISION: tl.constexpr):
    """Return what queries and keys [16, Dk] meet in the state, decayed until each [columns, 16].

    A state lies transposed, in pieces [columns, Dk / PIECES], as do updates: products leave them where the next ones
    take them. A piece goes through both products before the next, for want of registers.
    """
    seen = tl.dot(state[0], tl.trans(q[0] * since[:, None]), input_precision=PRECISION)
    held = tl.dot(state[0], tl.trans(k[0] * since[:, None]), input_precision=PRECISION)
    for index in tl.static_range(1, PIECES):
        seen = tl.dot(state[index], tl.trans(q[index] * since[:, None]), seen, input_precision=PRECISION)
        held = tl.dot(state[index], tl.trans(k[index] * since[:, None]), held, input_precision=PRECISION)
    return seen, held


@triton.jit
def moved(seen, held, v, beta, solved, reads, PRECISION: tl.constexpr):
    """Return what each row reads, NaN where its value is, and what it adds along its key, [columns, 16] both.

    Values that are not finite count as zero. The block's inverse and its reads lie transposed.
    """
    missing = tl.where(finite(v), v, 0.0) - held
    update = tl.dot(missing * beta[None, :], solved, input_precision=PRECISION)
    return seen + tl.dot(update, reads, input_precision=PRECISION) + v * 0.0, update


@triton.jit
def advanced(k, until, whole, update, state, PIECES: tl.constexpr, PRECISION: tl.constexpr):
    """Return the state after the block."""
    following = ()
    for index in tl.static_range(PIECES):
        added = tl.dot(update, k[index] * until[:, None], input_precision=PRECISION)
        following = following + (state[index] * whole + added,)  # noqa: RUF005
    return following


@triton.jit
def loaded(state_ptr, place, there, K_DIM: tl.constexpr, V_DIM: tl.constexpr, PIECE: tl.constexpr):
    """Return the pieces of a state whose first elements lie at `place`; zeros unless it is there."""
    state = ()
    for first in tl.static_range(0, K_DIM, PIECE):
        at = place[:, None] + (first + tl.arange(0, PIECE))[None, :] * V_DIM
        there_too = tl.full(at.shape, 0, tl.int32) + there > 0
        state = state + (tl.load(state_ptr + at, mask=there_too, other=0.0),)  # noqa: RUF005
    return state


@triton.jit
def store_state(state, state_ptr, place, K_DIM: tl.constexpr, V_DIM: tl.constexpr, PIECE: tl.constexpr):
    """The reverse of `loaded`."""
    for first in tl.static_range(0, K_DIM, PIECE):
        at = place[:, None] + (first + tl.arange(0, PIECE))[None, :] * V_DIM
        tl.store(state_ptr + at, state[first // PIECE])


@triton.jit
def normed(out, z, weight, eps, V_DIM: tl.constexpr):
    """Return rows of a head divided by their root mean square, times the norm's weight and SiLU of z."""
    scale = tl.rsqrt(from_squares(squares(out)) * (1.0 / V_DIM) + eps)
    return out * scale[:, None] * weight[None, :] * (z * sigmoid(z))
