"""The source of attention in CUDA C++."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from services.common.kernels.cuda import defined, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.span_attention.hopper.cut import ROWS, SPLITS

FOLDER = Path(__file__).parent
_FILES = (
    "sizes.cu", "asynchronous.cu", "bfloat16.cu", "powers.cu", "turn.cu", "instructions.cu", "span.cu", "loader.cu",
    "softmax.cu", "block.cu", "ends.cu", "products.cu", "attend.cu",
)  # fmt: skip
TOKENS = 64
"""Positions of a tile."""
_COLUMNS = 128
_THREADS, _ALIGNMENT, _BARRIER_BYTES = 128, 1024, 8
_FEW_LOADERS, _MOST_SHARED = 64, 227 * 1024
_SORTED = 256
_ORDER_BYTES = _SORTED * (4 + 2)
"""Of what some lines of items see, and of their order."""
_ROUND_STAGES = 4


class Shape(NamedTuple):
    """Numbers of a head, query heads of a K/V head, positions of a block, 64s of rows, and whether a CTA is alone.

    `items` are those that a CTA takes at once. Rows `in_block` are a drafter's. `halves` are those of a warpgroup's
    rows that an item may have. `ranked` sequences have one item a K/V head, and come sorted. `spread` CTAs take an item
    together.
    """

    size: int
    group: int
    block: int
    row_groups: int
    alone: bool
    items: int = 1
    in_block: bool = False
    halves: int = 2
    ranked: bool = False
    spread: int = 1

    @property
    def threads(self) -> int:
        """Those of a CTA: warpgroups that multiply, and warps that load."""
        groups = self.items * self.row_groups * self.size // _COLUMNS
        return groups * _THREADS + (_THREADS if groups > 1 else _FEW_LOADERS)

    @property
    def stages(self) -> int:
        """Tiles of keys and values under way: so many as shared memory holds, but of narrow heads in rounds fewer.

        Memory then serves all programs the sooner.
        """
        room = _MOST_SHARED - _ALIGNMENT - self._query_bytes - _ORDER_BYTES
        most = room // (self.items * self._stage_bytes)
        return min(most, _ROUND_STAGES) if self.row_groups == 1 else most

    @property
    def shared_bytes(self) -> int:
        """Those of a CTA."""
        return _ALIGNMENT + self.items * self.stages * self._stage_bytes + self._query_bytes + _ORDER_BYTES

    @property
    def _stage_bytes(self) -> int:
        return 2 * TOKENS * self.size * 2 + 2 * _BARRIER_BYTES

    @property
    def _query_bytes(self) -> int:
        return self.items * self.row_groups * ROWS * self.size * 2


def source_of(shape: Shape) -> str:
    """Return what a compiler is given; it includes nothing."""
    sizes = defined(
        size=shape.size, group=shape.group, block=shape.block, tokens=TOKENS, splits=SPLITS, stages=shape.stages,
        row_groups=shape.row_groups, items=shape.items, sorted=_SORTED, alone=int(shape.alone),
        has_block=int(shape.in_block), halves=shape.halves, ranked=int(shape.ranked), spread=shape.spread,
    )  # fmt: skip
    scores = wgmma("multiply_scores", TOKENS, registers=False)
    values = wgmma("multiply_values", _COLUMNS // shape.spread, registers=True, turned=True)
    return "\n".join((sizes, scores, values, read(_FILES, FOLDER)))


@cache
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        DriverError: the compiler or the GPU refuses it.
    """
    return CudaProgram(source_of(shape), "attend", shape.threads, shape.shared_bytes)
