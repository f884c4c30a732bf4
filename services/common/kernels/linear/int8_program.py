"""The loop of a product by a weight of eight bits: its numbers become those of the rows in registers, exactly.

Products are those of the wide weight and are added in the same order, so a row has the bits that the library would
give it with the wide weight.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED

_BY_SHIFTS: tl.constexpr = tl.constexpr(INTERPRETED)


@triton.jit
def multiply_int8(
    x_ptr, words_ptr, scales_ptr, line, end_line, row, rows, depth, stride, scales_stride,
    EVEN: tl.constexpr, X_LEFT: tl.constexpr,
):  # fmt: skip
    """Return the products of a band [lines, rows], group by group: first the lower halves' inputs, then the others'."""
    GROUP: tl.constexpr = 128
    HALF: tl.constexpr = 64
    TILE: tl.constexpr = 16
    if X_LEFT:
        total = tl.zeros((row.shape[0], line.shape[0]), dtype=tl.float32)
    else:
        total = tl.zeros((line.shape[0], row.shape[0]), dtype=tl.float32)
    place = tl.arange(0, HALF)
    known_row, known_line = (row < rows)[:, None], line < end_line
    words_at = (
        words_ptr + (line // TILE).to(tl.int64)[:, None] * stride + (line % TILE * HALF)[:, None] + place[None, :]
    )
    x_at = x_ptr + row.to(tl.int64)[:, None] * depth + place[None, :]
    for group in range(tl.cdiv(depth, GROUP)):
        column = group * GROUP + place[None, :]
        if EVEN:
            words = tl.load(words_at + group * (TILE * HALF))
            scale = tl.load(scales_ptr + group * scales_stride + line)
            low_x = tl.load(x_at + group * GROUP, mask=known_row, other=0.0)
            high_x = tl.load(x_at + (group * GROUP + HALF), mask=known_row, other=0.0)
        else:
            words = tl.load(words_at + group * (TILE * HALF), mask=known_line[:, None], other=0)
            scale = tl.load(scales_ptr + group * scales_stride + line, mask=known_line, other=0.0)
            low_x = tl.load(x_at + group * GROUP, mask=known_row & (column < depth), other=0.0)
            high_x = tl.load(x_at + (group * GROUP + HALF), mask=known_row & (column + HALF < depth), other=0.0)
        low, high = _bytes(words)
        low = _numbers(low, scale[:, None]).to(low_x.dtype)
        high = _numbers(high, scale[:, None]).to(low_x.dtype)
        if X_LEFT:
            total = tl.dot(low_x, low.T, total, input_precision="ieee")
            total = tl.dot(high_x, high.T, total, input_precision="ieee")
        else:
            total = tl.dot(low, low_x.T, total, input_precision="ieee")
            total = tl.dot(high, high_x.T, total, input_precision="ieee")
    if X_LEFT:
        total = total.T
    return total


@triton.jit
def _bytes(words):
    """Return 2^23 plus the lower and plus the upper byte of each word, as the bits of float32.

    One instruction a byte, where shifts and masks would take two.
    """
    if _BY_SHIFTS:
        wide = words.to(tl.int32)
        return (wide & 255) | 0x4B000000, ((wide >> 8) & 255) | 0x4B000000
    return tl.inline_asm_elementwise(
        """
        prmt.b32 $0, $4, 0x4B000000, 0x7440;
        prmt.b32 $1, $4, 0x4B000000, 0x7442;
        prmt.b32 $2, $4, 0x4B000000, 0x7441;
        prmt.b32 $3, $4, 0x4B000000, 0x7443;
        """,
        "=r,=r,=r,=r,r",
        [words],
        dtype=(tl.int32, tl.int32),
        is_pure=True,
        pack=2,
    )


@triton.jit
def _numbers(bits, scale):
    """Return `(byte - 128) * scale`, exactly."""
    return tl.fma(bits.to(tl.float32, bitcast=True), scale, scale * -8388736.0)
