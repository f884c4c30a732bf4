"""The source of what stands between the products of a row that is alone."""

from typing import NamedTuple

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.hopper.cut import SPLITS
from services.common.kernels.span_attention.hopper.source import TOKENS

CTAS = 8
"""Those of a cluster, which have a K/V head together."""
_SIZE, _MOST_GROUP = 128, 8
_MOST_WINDOW = (SPLITS - 1) * TOKENS + 1
"""However it lies, it has no more splits than there are teams."""


def takes_row(group: int, kv_heads: int, size: int, short: bool, window: int = 0) -> bool:
    """Whether it takes the only row of the only sequence, of so many query heads a K/V head.

    Tiles of long contexts come sooner to twice as many programs, which merge what they leave by a launch of its own. A
    window is short in any context.
    """
    if window > _MOST_WINDOW or not (short or window):
        return False
    return size == _SIZE and group <= _MOST_GROUP and kv_heads * CTAS <= PROCESSORS


_TEAM_THREADS = 128
MOST_SHARED = 26 * 1024
"""Bytes of shared memory that a multiprocessor has beside a CTA of the product before."""


class Shape(NamedTuple):
    """Numbers of a head, query heads of a K/V head, positions of a block, and those of a window, 0: all.

    Mixed heads may be multiplied by gates.
    """

    size: int
    group: int
    block: int
    window: int = 0
    gated: bool = False


def source_of(shape: Shape) -> Source:
    """Return what a compiler is given."""
    size, group, block, window, gated = shape
    sizes = defined(
        size=size, group=group, block=block, window=window, gated=int(gated), tokens=TOKENS, splits=SPLITS, ctas=CTAS,
        most_shared=MOST_SHARED,
    )  # fmt: skip
    return Source("span_attention/alone/attend.cu", sizes)


@kept
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "attend_alone", SPLITS // CTAS * _TEAM_THREADS, 0)
