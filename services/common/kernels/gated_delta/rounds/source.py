"""The sources of the kernels of rounds in CUDA C++: of few sequences, and of many."""

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram

PROGRAMS = (1, 2)
"""CTAs that share a processor: one that keeps its state in registers throughout, or two that take turns."""
_THREADS = 256
_BLOCK_BYTES, _TAPS_BYTES, _ALIGNMENT = 78_848, 6_144, 1024
TOGETHER_HEADS = 2
"""Heads that share queries and keys and that a CTA takes together."""
_MANY_THREADS, _PAIR_BYTES = 512, 229_376
_PROCESSORS = 128
"""CTAs of a launch, unless one sequence has more: no more run side by side, as one fills a processor."""


def source_of(programs: int) -> Source:
    """Return what a compiler is given."""
    products = product_source(16), product_source(32), product_source(128, turned=True)
    return Source(
        "gated_delta/rounds/round.cu",
        "".join((defined(programs=programs, memory_bytes=memory_bytes(programs)), *products)),
    )


def shared_bytes(programs: int) -> int:
    """Return those of a CTA: one that is alone on its processor prepares two blocks together."""
    return memory_bytes(programs) + _ALIGNMENT


def memory_bytes(programs: int) -> int:
    """Return those of blocks that are prepared together, and of taps; the compiler holds the kernel to them."""
    return (2 if programs == 1 else 1) * _BLOCK_BYTES + _TAPS_BYTES


@kept
def program_of(programs: int) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(programs), "delta_round", _THREADS, shared_bytes(programs))


def product_source(lines: int, turned: bool = False) -> str:
    """Return the source of one product of columns in registers with so many lines."""
    return wgmma(f"multiply_{lines}", lines, registers=True, turned=turned, kind="f16")


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
    return CudaProgram(many_source(), "delta_rounds", _MANY_THREADS, many_bytes())
