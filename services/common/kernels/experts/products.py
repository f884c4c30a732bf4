"""A tile of rows times a band of their expert's lines, which are numbers or codes of e4m3."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.linear.packed_widen import GROUP, to_bfloat16

_INTERPRETED = tl.constexpr(INTERPRETED)
_FOUR_SHORT = tl.constexpr("""
{
.reg .b32 a, b, c;
shr.b32 a, $4, 4;
and.b32 a, a, 0x07f007f0;
lop3.b32 b, $4, 0x80008000, a, 0xea;
mul.rn.bf16x2 b, b, $5;
mov.b32 {$0, $1}, b;
shl.b32 a, $4, 4;
shl.b32 c, $4, 8;
and.b32 a, a, 0x07f007f0;
lop3.b32 b, c, 0x80008000, a, 0xea;
mul.rn.bf16x2 b, b, $5;
mov.b32 {$2, $3}, b;
}
""")
"""Of a word of codes: those of the upper bytes of its halves, then of the lower ones, in places of bfloat16."""
_FOUR = tl.constexpr("""
{
.reg .b32 a, b, c;
.reg .f32 s, x, y;
mov.b32 s, $5;
shr.b32 a, $4, 4;
and.b32 a, a, 0x07f007f0;
lop3.b32 b, $4, 0x80008000, a, 0xea;
shl.b32 a, b, 16;
and.b32 b, b, 0xffff0000;
mov.b32 x, a;
mov.b32 y, b;
mul.rn.f32 x, x, s;
mul.rn.f32 y, y, s;
cvt.rn.bf16x2.f32 b, y, x;
mov.b32 {$0, $1}, b;
shl.b32 a, $4, 4;
shl.b32 c, $4, 8;
and.b32 a, a, 0x07f007f0;
lop3.b32 b, c, 0x80008000, a, 0xea;
shl.b32 a, b, 16;
and.b32 b, b, 0xffff0000;
mov.b32 x, a;
mov.b32 y, b;
mul.rn.f32 x, x, s;
mul.rn.f32 y, y, s;
cvt.rn.bf16x2.f32 b, y, x;
mov.b32 {$2, $3}, b;
}
""")
"""The same where a scale has more digits than bfloat16: products are exact, and rounded once."""


@triton.jit
def one_of_four(words, scale, byte: tl.constexpr):
    """Return the numbers of the codes in a byte of words, by the interpreter; scales are not raised."""
    code = (words >> byte * 8 & 255).to(tl.uint8)
    return to_bfloat16(code.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale)


@triton.jit
def widened(words, table, BAND: tl.constexpr, SHORT: tl.constexpr):
    """Return the numbers [BAND, 128] of words of codes in the order of `packed_weight`, in the order of their inputs.

    A lane has all codes of a word, and all numbers that it makes of them are those that it multiplies.
    """
    if _INTERPRETED:
        scale = (table & -65536 if SHORT else table).to(tl.float32, bitcast=True) * 7.52316384526264e-37
        first, second = one_of_four(words, scale, 1), one_of_four(words, scale, 3)
        third, fourth = one_of_four(words, scale, 0), one_of_four(words, scale, 2)
    else:
        first, second, third, fourth = tl.inline_asm_elementwise(
            _FOUR_SHORT if SHORT else _FOUR, "=h,=h,=h,=h,r,r", [words, table],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16), is_pure=True, pack=1,
        )  # fmt: skip
    halves = tl.join(tl.join(first, third), tl.join(second, fourth))
    by_lane = tl.reshape(halves, (BAND, 4, 8, 2, 2))
    return tl.reshape(tl.permute(by_lane, (0, 2, 3, 1, 4)), (BAND, GROUP))


@triton.jit
def lines_of(
    weight_ptr, line, fitting, scale_at, next_scales, first, depth, kind: tl.constexpr,
    BAND: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """Return some inputs of lines [BAND, DEPTH]: as they lie, or the numbers of a kind that their codes mean.

    Each line of codes has a scale for all its inputs, or one for each 128 of them, `next_scales` apart.
    """
    if scale_at is None:
        column = first + tl.arange(0, DEPTH)
        weight_at = weight_ptr + line.to(tl.int64)[:, None] * depth + column[None, :]
        if EVEN:
            numbers = tl.load(weight_at)
        else:
            numbers = tl.load(weight_at, mask=fitting[:, None] & (column < depth)[None, :], other=0.0)
    else:
        word = first // 4 + tl.arange(0, DEPTH // 4)
        words_at = weight_ptr + line.to(tl.int64)[:, None] * (depth // 4) + word[None, :]
        words = tl.load(words_at) if EVEN else tl.load(words_at, mask=fitting[:, None], other=0)
        table = tl.load(scale_at + first // GROUP * next_scales)
        numbers = widened(words, table[:, None], BAND, SHORT).to(kind)
    return numbers


@triton.jit
def multiplied(
    x_ptr, source, used, weight_ptr, line, fitting, scale_at, next_scales, depth,
    ROWS: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """Return a band of lines times rows of x [BAND, ROWS]: the whole depth in order, in one accumulator."""
    total = tl.zeros((BAND, ROWS), dtype=tl.float32)
    for first in range(0, depth, DEPTH):
        column = first + tl.arange(0, DEPTH)
        x_at = x_ptr + source.to(tl.int64)[:, None] * depth + column[None, :]
        if EVEN:
            x = tl.load(x_at, mask=used[:, None], other=0.0, cache_modifier=".cg")
        else:
            x = tl.load(x_at, mask=used[:, None] & (column < depth)[None, :], other=0.0, cache_modifier=".cg")
        weight = lines_of(
            weight_ptr, line, fitting, scale_at, next_scales, first, depth, x.dtype, BAND, DEPTH, EVEN, SHORT
        )
        total = tl.dot(weight, x.T, total, input_precision="ieee")
    return total


@triton.jit
def multiplied_twice(
    x_ptr, source, used, later, later_used, weight_ptr, line, fitting, scale_at, next_scales, depth,
    ROWS: tl.constexpr, MORE: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    SHORT: tl.constexpr,
):  # fmt: skip
    """Return the same of rows and of some more, [BAND, ROWS] and [BAND, MORE], for which lines are read once."""
    total, more = tl.zeros((BAND, ROWS), dtype=tl.float32), tl.zeros((BAND, MORE), dtype=tl.float32)
    for first in range(0, depth, DEPTH):
        column = first + tl.arange(0, DEPTH)
        x_at = x_ptr + source.to(tl.int64)[:, None] * depth + column[None, :]
        later_at = x_ptr + later.to(tl.int64)[:, None] * depth + column[None, :]
        if EVEN:
            x = tl.load(x_at, mask=used[:, None], other=0.0)
            late = tl.load(later_at, mask=later_used[:, None], other=0.0)
        else:
            within = (column < depth)[None, :]
            x = tl.load(x_at, mask=used[:, None] & within, other=0.0)
            late = tl.load(later_at, mask=later_used[:, None] & within, other=0.0)
        weight = lines_of(
            weight_ptr, line, fitting, scale_at, next_scales, first, depth, x.dtype, BAND, DEPTH, EVEN, SHORT
        )
        total = tl.dot(weight, x.T, total, input_precision="ieee")
        more = tl.dot(weight, late.T, more, input_precision="ieee")
    return total, more
