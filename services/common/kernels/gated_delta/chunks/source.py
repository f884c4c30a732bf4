"""The sources of a chunk's kernels in CUDA C++."""

from functools import cache
from pathlib import Path

from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.gated_delta.rounds.source import FOLDER as ROUNDS
from services.common.kernels.gated_delta.rounds.source import product_source

FOLDER = Path(__file__).parent
SHARING = 2
"""CTAs of either kernel that share a processor."""
STAGES = 3
"""Blocks that have been asked for, the one that a state goes through among them."""
_PREPARE_FILES = (
    ROUNDS / "arithmetic.cu", ROUNDS / "memory.cu", FOLDER / "pair.cu", ROUNDS / "rows.cu", ROUNDS / "block.cu",
    ROUNDS / "factors.cu", FOLDER / "prepare.cu",
)  # fmt: skip
_CHAIN_FILES = ROUNDS / "arithmetic.cu", FOLDER / "pipe.cu", FOLDER / "columns.cu", FOLDER / "chain.cu"
_PREPARE_THREADS, _CHAIN_THREADS = 256, 128
_PAIR_BYTES, _STAGE_BYTES, _BARRIERS_BYTES, _ALIGNMENT = 107_520, 33_792, 1024, 1024


def prepare_source() -> str:
    """Return what a compiler is given; it includes nothing."""
    return _joined((f"#define PROGRAMS {SHARING}",), _PREPARE_FILES)


def chain_source() -> str:
    """Return what a compiler is given; it includes nothing."""
    products = product_source(32, turned=0), product_source(128, turned=1)
    return _joined((f"#define PROGRAMS {SHARING}", f"#define STAGES {STAGES}", *products), _CHAIN_FILES)


def prepare_bytes() -> int:
    """Return those of shared memory that a CTA takes."""
    return _PAIR_BYTES + _ALIGNMENT


def chain_bytes() -> int:
    """Return those of shared memory that a CTA takes."""
    return STAGES * _STAGE_BYTES + _BARRIERS_BYTES + _ALIGNMENT


@cache
def prepare_program() -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(prepare_source(), "delta_prepare", _PREPARE_THREADS, prepare_bytes())


@cache
def chain_program() -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(chain_source(), "delta_chain", _CHAIN_THREADS, chain_bytes())


def _joined(head: tuple[str, ...], files: tuple[Path, ...]) -> str:
    return "\n".join((*head, *(file.read_text(encoding="utf-8") for file in files)))
