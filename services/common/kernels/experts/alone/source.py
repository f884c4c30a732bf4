"""The source of what takes a row that is alone through its experts, and how its work is cut into pieces."""

from typing import NamedTuple

from services.common.kernels.ahead import kept
from services.common.kernels.cuda import Source, defined
from services.common.kernels.cuda_program import CudaProgram

ROW_BYTES = 128
"""Of a line in a stage."""
_PROCESSORS, _EIGHT, _INSTRUCTION_LINES, _WARP = 132, 8, 16, 32
_MOST_LINES, _MOST_EXPERTS, _MOST_STEPS, _MOST_DOWN = 240, 512, 32, 32
_RING_BYTES, _ALIGNMENT, _STAGE_BYTES, _INT = 128 * 1024, 1024, 20, 4
"""So much of a ring leaves room for a CTA of the router's product beside it."""


class Shape(NamedTuple):
    """Numbers of a row and of an expert's inner part, experts, those of a row, and what their weights are.

    Experts may be rated by sigmoids and a bias, and followed by one that all rows take.
    """

    hidden: int
    inner: int
    experts: int
    top_k: int
    renorm: bool
    coded: bool = False
    short: bool = False
    rated: bool = False
    followed: bool = False

    @property
    def ranks(self) -> int:
        """Experts of a row, with the one that all rows take."""
        return self.top_k + self.followed

    @property
    def inputs(self) -> int:
        """Of a stage."""
        return ROW_BYTES if self.coded else ROW_BYTES // 2

    @property
    def up(self) -> int:
        """Outputs of a piece of the first product, which is of one expert: every multiprocessor gets about one."""
        return _shared_out(self.inner, _PROCESSORS // self.ranks, _EIGHT)

    @property
    def down(self) -> int:
        """Outputs of a piece of the last product, which is of all experts."""
        return _shared_out(self.hidden, _PROCESSORS, _INSTRUCTION_LINES)

    @property
    def lines(self) -> int:
        """Most lines of a stage."""
        return max(2 * self.up, self.ranks * self.down)

    @property
    def stages(self) -> int:
        """Of the ring."""
        return _RING_BYTES // (self.lines * ROW_BYTES)

    @property
    def ctas(self) -> int:
        """As many as there are pieces of one product."""
        return min(_PROCESSORS, max(self.ranks * -(-self.inner // self.up), -(-self.hidden // self.down)))

    @property
    def threads(self) -> int:
        """Warps of sixteen lines each, and the one that loads."""
        return (self._warps + 1) * _WARP

    @property
    def shared_bytes(self) -> int:
        """Of a CTA."""
        ring = self.stages * (self.lines * ROW_BYTES + _STAGE_BYTES)
        rows = 2 * (self.hidden + self._warps * self.inner)
        return _ALIGNMENT + ring + rows + self.ranks * (self.down + 2) * _INT

    @property
    def words(self) -> int:
        """That CTAs share: four, and one for each number of inner rows."""
        return 4 + self.ranks * self.inner

    @property
    def _warps(self) -> int:
        return -(-self.lines // _INSTRUCTION_LINES)

    def fits(self) -> bool:
        """Whether there is such a kernel."""
        if self.ranks > _WARP or self.experts > _MOST_EXPERTS or self.hidden % self.inputs or self.inner % self.inputs:
            return False
        if self.coded and max(self.hidden, self.inner) > _MOST_STEPS * self.inputs:
            return False
        return self.lines <= _MOST_LINES and self.down <= _MOST_DOWN


def source_of(shape: Shape) -> Source:
    """Return what a compiler is given."""
    build = defined(
        hidden=shape.hidden, inner=shape.inner, count=shape.experts, top_k=shape.top_k, renorm=int(shape.renorm),
        up=shape.up, down=shape.down, stages=shape.stages, coded=int(shape.coded), short=int(shape.short),
        rated=int(shape.rated), followed=int(shape.followed),
    )  # fmt: skip
    return Source("experts/alone/row.cu", build)


@kept
def program_of(shape: Shape) -> CudaProgram:
    """Return the kernel, compiled once.

    Raises:
        CompileError, DriverError: the compiler, or the GPU, refuses it.
    """
    return CudaProgram(source_of(shape), "row", shape.threads, shape.shared_bytes)


def _shared_out(outputs: int, parts: int, multiple: int) -> int:
    return -(-outputs // (parts * multiple)) * multiple
