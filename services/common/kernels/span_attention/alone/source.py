"""The source of what stands between the products of a row that is alone."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from services.common.kernels.cuda import defined, read
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear.cuda import FOLDER as LINEAR
from services.common.kernels.span_attention.alone.cut import CTAS
from services.common.kernels.span_attention.hopper.cut import SPLITS
from services.common.kernels.span_attention.hopper.source import FOLDER as HOPPER
from services.common.kernels.span_attention.hopper.source import TOKENS

FOLDER = Path(__file__).parent
_FILES = (
    "sizes.cu", "asynchronous.cu", "bfloat16.cu", "arithmetic.cu", "powers.cu", "turn.cu", "splits.cu",
    "instructions.cu", "heads.cu", "queries.cu", "tiles.cu", "parts.cu", "attend.cu",
)  # fmt: skip
_TEAM_THREADS = 128


class Shape(NamedTuple):
    """Numbers of a head, query heads of a K/V head, and positions of a block."""

    size: int
    group: int
    block: int


def source_of(shape: Shape, ctas: int = CTAS) -> str:
    """Return what a compiler is given; it includes nothing."""
    size, group, block = shape
    sizes = defined(size=size, group=group, block=block, tokens=TOKENS, splits=SPLITS, ctas=ctas)
    return "\n".join((sizes, read(_FILES, FOLDER, HOPPER, LINEAR)))


@cache
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "attend_alone", SPLITS // CTAS * _TEAM_THREADS, 0)
