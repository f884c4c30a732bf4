"""The source of attention in CUDA C++."""

from typing import NamedTuple

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined, wgmma
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.span_attention.hopper.cut import ROWS, SPLITS

_KERNEL, _SPREAD_KERNEL = "span_attention/hopper/attend.cu", "span_attention/hopper/spread.cu"
_NARROW_KERNEL = "span_attention/hopper/narrow.cu"
_CODED_KERNEL, _LEFT_KERNEL = "span_attention/hopper/coded.cu", "span_attention/hopper/left.cu"
TOKENS = 64
"""Positions of a tile."""
_COLUMNS = 128
_THREADS, _ALIGNMENT, _BARRIER_BYTES = 128, 1024, 8
_FEW_LOADERS, _MOST_SHARED = 64, 227 * 1024
_HANDED = 2
_HANDED_BYTES = _HANDED * (ROWS * (TOKENS * 2 + 2 * 4) + 2 * _BARRIER_BYTES)
"""Of weights on their way to the warpgroup that adds values, and of what is told with them."""
LEFT_ROWS, _LEFT_HANDED, _LEFT_STAGES = 32, 4, 8
"""Rows that have codes as left operands, at most; tiles whose weights are on their way there, and tiles under way."""
_KEY_GROUPS, _VALUE_GROUPS = 2, 2
"""Warpgroups that score there, and that add values."""
_POWERS_BYTES = 3 * TOKENS * 2 + 16
"""Of what codes of a tile's values are multiplied by."""
_SORTED = 256
_ORDER_BYTES = _SORTED * (4 + 2)
"""Of what some lines of items see, and of their order."""
_ROUND_STAGES, _SPREAD_STAGES = 4, 6
_WIDE_STAGES, _CODE_STAGES = 3, 6
"""Tiles of numbers that are made of codes, and tiles of codes under way, at most."""
_SCORERS, _SLOTS = 3, 4
"""Warpgroups that weigh where CTAs take an item together, and tiles whose weights are on their way to another one."""
_RELAY_BYTES = _SLOTS * (ROWS * TOKENS * 2 + ROWS * 4 + 2 * _BARRIER_BYTES) + ROWS * TOKENS * 2
"""Of such weights, and of ones."""
NARROW_NODES, _PLACES, _NODE_STAGES = 17, 32, 2
"""Nodes whose paths lie in two steps wherever these begin, the places of both, and the tiles that both may lie in."""
_NARROW_BYTES = ROWS * (_PLACES + 8) * 4 + NARROW_NODES * (_PLACES + 4)
"""Of scores and paths of nodes."""


class Shape(NamedTuple):
    """Numbers of a head, query heads of a K/V head, positions of a block, 64s of rows, and whether a CTA is alone.

    `items` are those that a CTA takes at once. Rows `in_block` are a drafter's. `halves` are those of a warpgroup's
    rows that an item may have. `ranked` sequences have one item a K/V head, and come sorted. `spread` CTAs take an item
    together. Rows that are `nodes` see their own paths. Keys and values may be `codes`. Rounds whose items have up to
    `counted` rows, few sizes of which are built, have codes as left operands; no other program has such a number.
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
    kv_heads: int = 8
    nodes: bool = False
    codes: bool = False
    counted: int = 0

    @property
    def columns(self) -> int:
        """Those of a head's numbers that a warpgroup adds."""
        return min(self.size, _COLUMNS) // self.spread

    @property
    def narrow(self) -> bool:
        """Whether a CTA has a tree: a warpgroup takes its context, and another one what lies from the length on."""
        return self.nodes and self.spread == 1

    @property
    def threads(self) -> int:
        """Those of a CTA: warpgroups that multiply, and warps that load."""
        if self.spread > 1:
            return (_SCORERS + 2) * _THREADS
        if self.narrow:
            return 2 * _THREADS + _FEW_LOADERS
        groups = self.items * self.row_groups * self.size // self.columns
        if self.counted:
            return (_KEY_GROUPS + _VALUE_GROUPS + 1) * _THREADS
        if self.codes:
            return (groups + 1 + self.wideners + self.apart) * _THREADS
        return groups * _THREADS + (_THREADS if groups > 1 else _FEW_LOADERS)

    @property
    def stages(self) -> int:
        """Tiles of keys and values under way: so many as shared memory holds, but of narrow heads in rounds fewer.

        Memory then serves all programs the sooner.
        """
        if self.spread > 1:
            return _SPREAD_STAGES
        if self.codes:
            return 0 if self.counted else _WIDE_STAGES
        room = _MOST_SHARED - _ALIGNMENT - self._query_bytes - _ORDER_BYTES
        most = room // (self.items * self._stage_bytes)
        return min(most, _ROUND_STAGES) if self.row_groups == 1 else most

    @property
    def code_stages(self) -> int:
        """Tiles of codes under way."""
        if not self.codes:
            return 0
        room = _MOST_SHARED - self._fixed_bytes - self.stages * self._stage_bytes
        return min(room // self._code_bytes, _LEFT_STAGES if self.counted else _CODE_STAGES)

    @property
    def apart(self) -> bool:
        """Whether a warpgroup scores and another one adds values, of numbers that others make of codes."""
        return self.codes and self.row_groups == 1 and not self.counted

    @property
    def wideners(self) -> int:
        """Warpgroups that make numbers of codes."""
        return (1 if self.row_groups > 1 else 2) if self.codes and not self.counted else 0

    @property
    def shared_bytes(self) -> int:
        """Those of a CTA."""
        tiles = self.items * self.stages * self._stage_bytes + self.code_stages * self._code_bytes
        return self._fixed_bytes + tiles

    @property
    def _fixed_bytes(self) -> int:
        beside = (_RELAY_BYTES if self.spread > 1 else _ORDER_BYTES) + (self._path_bytes if self.nodes else 0)
        if self.narrow:
            beside = _NODE_STAGES * self._stage_bytes + 2 * _THREADS * (self.size * 2 + 16) + _NARROW_BYTES
        handed = _HANDED_BYTES if self.apart else self._counted_bytes if self.counted else 0
        return _ALIGNMENT + self._query_bytes + beside + handed

    @property
    def _counted_bytes(self) -> int:
        slot, best = self.counted * (TOKENS * 2 + 4 * 4) + 16 + 2 * _BARRIER_BYTES, self.counted * 4
        sums, found = self.counted * self.size * 4 + 3 * best, 2 * _KEY_GROUPS * 4 * best
        return _LEFT_HANDED * slot + sums + found + _KEY_GROUPS * _BARRIER_BYTES

    @property
    def _path_bytes(self) -> int:
        most = ROWS // self.group
        return (ROWS * (most | 1) + most) * 4 + most * most

    @property
    def _stage_bytes(self) -> int:
        tile = TOKENS * self.size * 2
        return tile + tile // self.spread + 2 * _BARRIER_BYTES

    @property
    def _code_bytes(self) -> int:
        beside = _POWERS_BYTES + 3 * _BARRIER_BYTES if self.counted else 0
        return 2 * TOKENS * (self.size + self.kv_heads) + 2 * _BARRIER_BYTES + beside

    @property
    def _query_bytes(self) -> int:
        return self.items * self.row_groups * ROWS * self.size * 2


def source_of(shape: Shape) -> Source:
    """Return what a compiler is given."""
    sizes = defined(
        size=shape.size, group=shape.group, block=shape.block, tokens=TOKENS, splits=SPLITS, stages=shape.stages,
        row_groups=shape.row_groups, items=shape.items, sorted=_SORTED, alone=int(shape.alone),
        has_block=int(shape.in_block), halves=shape.halves, ranked=int(shape.ranked), spread=shape.spread,
        kv_heads=shape.kv_heads, scorers=_SCORERS, slots=_SLOTS, tree=int(shape.nodes),
        codes=int(shape.codes), code_stages=shape.code_stages, wideners=shape.wideners,
        handed=_LEFT_HANDED if shape.counted else _HANDED, counted_rows=shape.counted, key_groups=_KEY_GROUPS,
    )  # fmt: skip
    scores = wgmma("multiply_scores", TOKENS, registers=False)
    values = wgmma("multiply_values", shape.columns, registers=True, turned=True)
    weighed = wgmma("multiply_weighed", shape.columns + 8, registers=False, turned=True)
    kernel = _SPREAD_KERNEL if shape.spread > 1 else _NARROW_KERNEL if shape.narrow else _KERNEL
    kernel = _CODED_KERNEL if shape.apart else _LEFT_KERNEL if shape.counted else kernel
    lines = wgmma("multiply_lines", shape.counted, registers=True) if shape.counted else ""
    return Source(kernel, sizes + scores + values + weighed + lines)


@kept
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "attend", shape.threads, shape.shared_bytes)
