"""The source of the kernel for rounds of one sequence, whose heads have several CTAs each."""

from functools import cache

from services.common.kernels.cuda import Source, defined
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.gated_delta.rounds.source import memory_bytes, product_source

CTAS = 2
"""CTAs of a head: a cluster. Two launches find room side by side, as their CTAs have a processor each."""
_THREADS = 256
_SHARES_BYTES, _ALIGNMENT = 197_632, 1024
_ALONE_ROWS = 2
"""Rows that each CTA makes for itself: no more than its warps make at once."""


def cluster_source(ctas: int = CTAS) -> Source:
    """Return what a compiler is given."""
    products = product_source(16), product_source(32), product_source(128, turned=True)
    sizes = defined(
        programs=1, ctas=ctas, alone_rows=_ALONE_ROWS, memory_bytes=memory_bytes(1), shares_bytes=_SHARES_BYTES
    )
    return Source("gated_delta/rounds/clusters/cluster.cu", "".join((sizes, *products)))


def cluster_bytes() -> int:
    """Return those of shared memory that a CTA takes."""
    return _SHARES_BYTES + _ALIGNMENT


def cluster_grid(batch: int, heads: int, ctas: int = CTAS) -> tuple[int, int]:
    """Return the CTAs: those of a head are neighbours."""
    return heads * ctas, batch


@cache
def cluster_program() -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(cluster_source(), "delta_cluster", _THREADS, cluster_bytes())
