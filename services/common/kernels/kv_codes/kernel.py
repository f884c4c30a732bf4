"""The same by kernels: what those that store heads, and those that read them, do with each head's numbers.

Bytes of a head of D numbers: D + 1 in place of 2 D.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
_WHOLE = tl.constexpr(12582912.0)
"""Adding it leaves no digits behind the point, and halfway gives the even number."""
_LEAST, _MOST, _NOT_A_NUMBER = tl.constexpr(-126), tl.constexpr(121), tl.constexpr(127)
_INFINITE, _SIGNLESS, _FRACTIONS = tl.constexpr(0x7F800000), tl.constexpr(0x7FFFFFFF), tl.constexpr(23)
_ABOVE = tl.constexpr(0x1FFFF)
"""Carries a number's fraction into its exponent where it is above 127 / 64."""


@triton.jit
def store_halves(codes_ptr, exponents_ptr, place, fits, low, high, takes, SIZE: tl.constexpr):
    """Store heads [M] at places, given as halves [H, M] that are zero outside of a head, in the type to be coded."""
    low, high = low.to(tl.float32), high.to(tl.float32)
    exponent = _exponent_of(tl.maximum(tl.max(_size_of(low), 0), tl.max(_size_of(high), 0)))
    target = codes_ptr + place[None, :] * SIZE + tl.arange(0, low.shape[0])[:, None]
    tl.store(target, _codes_of(low, exponent[None, :]), mask=takes)
    tl.store(target + SIZE // 2, _codes_of(high, exponent[None, :]), mask=takes)
    tl.store(exponents_ptr + place, exponent.to(tl.int8), mask=fits)


@triton.jit
def store_heads(codes_ptr, exponents_ptr, place, fits, heads, takes, SIZE: tl.constexpr):
    """Store heads [M, D] at places [M], zero outside of a head, in the type to be coded."""
    heads = heads.to(tl.float32)
    exponent = _exponent_of(tl.max(_size_of(heads), 1))
    target = codes_ptr + place[:, None] * SIZE + tl.arange(0, heads.shape[1])[None, :]
    tl.store(target, _codes_of(heads, exponent[:, None]), mask=takes)
    tl.store(exponents_ptr + place, exponent.to(tl.int8), mask=fits)


@triton.jit
def _size_of(x):
    """Return a number's bits without its sign: integers in the order of sizes, NaN above all."""
    return x.to(tl.int32, bitcast=True) & _SIGNLESS


@triton.jit
def _exponent_of(top):
    """Return the exponent of heads whose largest `_size_of` a number is given."""
    exponent = (tl.minimum(top, _INFINITE) + _ABOVE >> _FRACTIONS) - 133
    return tl.where(exponent > _MOST, _NOT_A_NUMBER, tl.maximum(exponent, _LEAST))


@triton.jit
def _codes_of(x, exponent):
    """Return the codes of numbers whose heads have these exponents."""
    factor = (127 - exponent << _FRACTIONS).to(tl.float32, bitcast=True)
    whole = (x * factor + _WHOLE) - _WHOLE
    return tl.where(exponent == _NOT_A_NUMBER, 127.0, whole).to(tl.int8)


@triton.jit
def widened(loaded, exponents_ptr, place, reads, kind: tl.constexpr, SIZE: tl.constexpr):
    """Return loaded heads [T, D] as numbers of a kind: as they are, or codes of heads whose first one is at `place`.

    `reads` says which have been read; None: all.
    """
    if loaded.dtype != tl.int8:
        return loaded
    return scaled(loaded, tl.load(exponents_ptr + place // SIZE, mask=reads, other=None if reads is None else 0), kind)


@triton.jit
def scaled(codes, exponent, kind: tl.constexpr):
    """Return what codes [T, D] with exponents [T] mean, as numbers of a kind; numbers are as they are."""
    if codes.dtype != tl.int8:
        return codes
    exponent = exponent.to(tl.int32)
    factor = (exponent + 127 << _FRACTIONS).to(tl.float32, bitcast=True)
    factor = tl.where(exponent == _NOT_A_NUMBER, float("nan"), factor)
    return _in_order((codes.to(tl.float32) * factor[:, None]).to(kind))


@triton.jit
def _in_order(numbers):
    """Return the numbers, of which the compiler does not see that they come from bytes.

    A product of numbers that it knows to be loaded as bytes deals each 32 inputs to two instructions in turn, so that a
    lane multiplies four neighbours. Then a sum has another order than that of numbers loaded as such.
    """
    if numbers.dtype.primitive_bitwidth != 16 or _INTERPRETED:
        return numbers
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [numbers], dtype=numbers.dtype, is_pure=False, pack=2)
