"""How products of packed weights are divided among CTAs: all multiprocessors get about as many bytes of a weight."""

from typing import Any, NamedTuple

from services.common.kernels.linear.cuda import Kind

GROUP = 128
"""Inputs that share a scale of a line where it has more than one."""
ROWS = (8, 16, 32, 64, 128)
"""Rows that a kernel is built for; those behind the last count for nothing."""
EIGHT = 8
"""Lines of an instruction, and the fewest of a scale that kernels need not keep for each line."""
_X_DEPTH, _X_ROW_BYTES, _SCALE_BYTES = 64, 128, 4
_PROCESSORS, _TILE, _MOST_LINES, _MOST_OF_TWO = 132, 64, 192, 128
_PAIR, _GROUPED = 2, 120
"""CTAs of a cluster that finds room anywhere, and multiprocessors that larger clusters fill at once."""
_FEW_ROWS, _ALONE_ROWS, _ALONE_LINES = 32, 16, 96
"""Rows that are multiplied without warpgroups; rows and lines of a CTA whose warps have eight lines each."""
_ALIGNMENT, _STAGE_BARRIERS = 1024, 16
_SHARED_BYTES, _MOST_STAGES = 224 * 1024, 24


class PackedTiling(NamedTuple):
    """Rows and lines of a CTA, swizzled rows of codes in a stage, stages, and what follows.

    A multiprocessor has room for `ctas`. `groups` are the 128s of depth that have scales of their own, or 1. Scales are
    `fine` where lines have their own, and `short` where they are numbers of bfloat16. `across` CTAs of a cluster have
    the same rows, `share` the same lines; they load them for one another. A batch of instructions is waited for at
    once. None of it changes a bit.
    """

    rows: int
    lines: int
    subs: int
    stages: int
    ctas: int
    groups: int
    fine: bool
    short: bool
    kind: Kind
    bits: int = 8
    across: int = 1
    share: int = 1
    row_bytes: int = 128
    batch: int = 4
    paired: bool = False

    @property
    def depth(self) -> int:
        """Inputs of a stage."""
        return self.subs * self.row_bytes * 8 // self.bits

    @property
    def turns(self) -> int:
        """Stages after which all places of batches are in turn again."""
        return 1 if self.paired else 1 + self.depth // (16 * self.batch) % 2

    @property
    def band(self) -> int:
        """Outputs of a CTA."""
        return self.lines // 2 if self.kind == Kind.GATED else self.lines

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.across * self.share

    @property
    def few(self) -> bool:
        """Whether each warp multiplies by itself."""
        return self.rows <= _FEW_ROWS

    @property
    def warps(self) -> int:
        """Those that multiply: one for its lines, or four for each 64, or eight."""
        if not self.few:
            return -(-self.lines // _TILE) * 4 * (1 + self.paired)
        alone = self.rows <= _ALONE_ROWS and self.lines <= _ALONE_LINES and self.kind != Kind.GATED
        return -(-self.lines // (EIGHT if alone else 2 * EIGHT))

    @property
    def threads(self) -> int:
        """Of the warps that multiply, and of one that loads."""
        return (self.warps + 1) * 32

    @property
    def row_box(self) -> int:
        """Rows that a CTA loads at a time."""
        return self.rows // self.across

    @property
    def line_box(self) -> int:
        """Lines that a CTA loads at a time."""
        return self.lines // self.share

    @property
    def scale_bytes(self) -> int:
        """Of the scales that a CTA keeps, and of those that it asks for behind the last."""
        return -(-(self.groups + 1) * (self.lines if self.fine else self.lines // EIGHT) * _SCALE_BYTES // 16) * 16

    @property
    def stage_bytes(self) -> int:
        """Of rows and codes."""
        rows = self.rows * self.depth // _X_DEPTH * _X_ROW_BYTES
        return -(-(rows + self.subs * self.lines * self.row_bytes) // _ALIGNMENT) * _ALIGNMENT

    @property
    def shared_bytes(self) -> int:
        """Of a CTA."""
        return _ALIGNMENT + self.stages * (self.stage_bytes + _STAGE_BARRIERS) + self.scale_bytes + self.sum_bytes

    @property
    def sum_bytes(self) -> int:
        """Of sums that are handed over."""
        return -(-self.lines // _TILE) * _TILE * self.rows * 4 if self.paired else 0

    @property
    def squares_bytes(self) -> int:
        """Of shared memory beside: squares of rows, by warp."""
        return self.warps // (1 + self.paired) * self.rows * 8 if self.kind == Kind.ADDED else 0

    def grid(self, lines: int) -> tuple[int, int]:
        """Return the CTAs of a weight."""
        bands = -(-lines // self.lines)
        return -(-bands // self.across) * self.cluster, 1


def packed_cut(
    lines: int, depth: int, rows: int, kind: Kind, groups: int, fine: bool, short: bool, bits: int = 8, **forced: Any
) -> PackedTiling | None:
    """Return the cut of a weight for so many rows; None where it does not fit, or rows are too many.

    What is `forced` is taken for what the rule says.
    """
    step = 2 * EIGHT if kind == Kind.GATED else EIGHT
    if not forced and kind != Kind.GATED and rows > _FEW_ROWS:
        forced = {"share": 2}
        if kind == Kind.ADDED and rows > 2 * _FEW_ROWS:
            forced |= {"subs": 2, "batch": 8, "paired": 1}
    share = forced.pop("share", 1)
    rows = next((most for most in ROWS if most * share >= rows), 0)
    if not rows or depth % (1024 // bits) or lines % step or kind not in _KINDS:
        return None
    across = forced.pop("across", 1)
    processors = (_PROCESSORS if across * share <= _PAIR else _GROUPED) // share
    step *= share
    # Two have no registers for the sums of many rows.
    ctas = 1 if lines <= processors * _MOST_LINES or rows == ROWS[-1] else 2
    waves = -(-lines // (processors * (_MOST_LINES if ctas == 1 else _MOST_OF_TWO)))
    band = -(-lines // (processors * waves * step)) * step
    cut = PackedTiling(rows, band, 1, 1, ctas, groups, fine, short, kind, bits, across, share)
    ring = forced.pop("ring", _SHARED_BYTES // ctas)
    subs = (forced.pop("subs"),) if "subs" in forced else (4, 2, 1)
    return _staged(cut._replace(**forced), depth, ring, subs)


def _staged(cut: PackedTiling, depth: int, ring: int, tried: tuple[int, ...]) -> PackedTiling | None:
    """Return the cut with a ring that fits; None if none does."""
    room = ring - cut.scale_bytes - cut.sum_bytes - cut.squares_bytes - _ALIGNMENT
    for least in (_LEAST_STAGES, 4, 3, 2):
        for subs in tried:
            wider = cut._replace(subs=subs)
            stages = min(room // (wider.stage_bytes + _STAGE_BARRIERS), _MOST_STAGES, depth // wider.depth)
            if wider.depth % (GROUP if cut.paired else 16 * cut.batch) or depth % (wider.depth * wider.turns):
                continue
            if stages >= min(least, depth // wider.depth):
                return wider._replace(stages=stages)
    return None


_KINDS = (Kind.PLAIN, Kind.GATED, Kind.ADDED)
_LEAST_STAGES = 6
"""Fewer stages are not made larger: one is multiplied, and another one waits to be filled again."""
