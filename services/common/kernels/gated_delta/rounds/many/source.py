"""The source of the kernel for rounds of many sequences."""

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.gated_delta.rounds.source import product_source

TOGETHER_HEADS = 2
"""Heads that share queries and keys and that a CTA takes together."""
_THREADS = 512
_PAIR_BYTES, _ALIGNMENT = 229_376, 1024
_PROCESSORS = 128
"""CTAs of a launch, unless one sequence has more: no more run side by side, as one fills a processor."""


def many_source() -> Source:
    """Return what a compiler is given. Registers are short, as for two CTAs a processor."""
    products = product_source(16), product_source(32), product_source(128, turned=True)
    return Source("gated_delta/rounds/many/many.cu", "".join((defined(programs=2, pair_bytes=_PAIR_BYTES), *products)))


def many_bytes() -> int:
    """Return those of shared memory that a CTA takes."""
    return _PAIR_BYTES + _ALIGNMENT


def many_grid(batch: int, k_heads: int, heads: int) -> tuple[int, int]:
    """Return the CTAs: pairs of heads of a sequence, by sequences that are begun together."""
    pairs = k_heads * -(-(heads // k_heads) // TOGETHER_HEADS)
    return pairs, max(1, min(batch, _PROCESSORS // pairs))


@kept
def many_program() -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(many_source(), "delta_rounds", _THREADS, many_bytes())
