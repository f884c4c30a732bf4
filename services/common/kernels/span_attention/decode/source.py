"""The source of attention of a row each of many sequences."""

from functools import cache
from typing import NamedTuple

from services.common.kernels.cuda import Source, defined
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.span_attention.hopper.cut import SPLITS
from services.common.kernels.span_attention.hopper.source import TOKENS

_THREADS, _ALIGNMENT = 32, 1024
_UNITS = 3
"""Tiles of keys or of values that a CTA has under way: so many leave room for four CTAs a multiprocessor."""


class Shape(NamedTuple):
    """Numbers of a head, K/V heads, query heads of each, positions of a block, and what heads have."""

    size: int
    kv_heads: int
    group: int
    block: int
    biased: bool = False
    normed: bool = False


def source_of(shape: Shape) -> Source:
    """Return what a compiler is given."""
    numbers = {name: int(number) for name, number in shape._asdict().items()}
    sizes = defined(**numbers, tokens=TOKENS, splits=SPLITS, units=_UNITS)
    return Source("span_attention/decode/attend.cu", sizes)


@cache
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "attend_rows", _THREADS, _ALIGNMENT + _UNITS * TOKENS * shape.size * 2)
