"""The sources of a chunk's kernels in CUDA C++."""

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.gated_delta.rounds.source import product_source

SHARING = 2
"""CTAs of either kernel that share a processor."""
STAGES = 3
"""Blocks that have been asked for, the one that a state goes through among them."""
_PREPARE_THREADS, _CHAIN_THREADS = 256, 128
_PAIR_BYTES, _STAGE_BYTES, _BARRIERS_BYTES, _ALIGNMENT = 107_520, 33_792, 1024, 1024


def prepare_source() -> Source:
    """Return what a compiler is given."""
    return Source("gated_delta/chunks/prepare.cu", defined(programs=SHARING, pair_bytes=_PAIR_BYTES))


def chain_source() -> Source:
    """Return what a compiler is given."""
    products = product_source(32), product_source(128, turned=True)
    return Source("gated_delta/chunks/chain.cu", "".join((defined(programs=SHARING, stages=STAGES), *products)))


def prepare_bytes() -> int:
    """Return those of shared memory that a CTA takes."""
    return _PAIR_BYTES + _ALIGNMENT


def chain_bytes() -> int:
    """Return those of shared memory that a CTA takes."""
    return STAGES * _STAGE_BYTES + _BARRIERS_BYTES + _ALIGNMENT


@kept
def prepare_program() -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(prepare_source(), "delta_prepare", _PREPARE_THREADS, prepare_bytes())


@kept
def chain_program() -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(chain_source(), "delta_chain", _CHAIN_THREADS, chain_bytes())
