"""How products in tiles are divided among CTAs: of few rows by a rule, of more by measurement."""

from typing import NamedTuple

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.tables import cuts

SUB, WIDE_SUB = 128, 64
"""Inputs of a swizzled row, in eight bits and in bfloat16: stages are multiples of it deep."""
FEW_ROWS = 64
"""Rows of a tile that has all of them: such products are cut by a rule, for what counts is their weight."""
STORED_LINES = 4
"""Results that a thread stores at a time, of a gated weight half as many."""
_SUB_BYTES = 128
_BARRIER_BYTES, _ALIGNMENT = 8, 1024
_GROUP_ROWS, _GROUP_THREADS, _WARP_THREADS = 64, 128, 32
_LOADING_ROWS = 128
_PAIR, _GROUPED = 2, 16
"""CTAs of a cluster that finds room anywhere, and multiprocessors next to one another that larger clusters fill."""
_SWIZZLED_LINES, _FEW_LINES, _FEWEST_LINES, _INSTRUCTION_LINES = 8, 24, 16, 16
_PROCESSORS, _FOURS, _MOST_BAND = 132, 112, 128
"""Multiprocessors, and those at least that clusters of four find at once: 128 such CTAs took two turns."""
_SHARED_BYTES, _STAGE_BYTES, _LONG_STAGE_BYTES, _MOST_STAGES = 231_424, 24 * 1024, 40 * 1024, 16


class PersistentTiling(NamedTuple):
    """Rows and lines of a tile (of a gated weight in each half), swizzled rows of a stage, stages, and what follows.

    `share` CTAs of a cluster have the same lines, or `across` CTAs the same rows; they load them for one another.
    `wide` numbers are bfloat16; `grouped` ones are e4m3 codes with scales for each 128 inputs, else there are whole
    numbers. None of it changes a bit: every sum adds up in order of depth.
    """

    rows: int
    band: int
    subs: int
    stages: int
    kind: Kind = Kind.PLAIN
    share: int = 1
    across: int = 1
    wide: bool = False
    grouped: bool = False

    @property
    def halves(self) -> int:
        """Parts of the weight that a tile has lines of."""
        return 1 + (self.kind == Kind.GATED)

    @property
    def lines(self) -> int:
        """Of a matrix instruction, which takes eights; of integers 16s above 24."""
        lines = self.halves * _rounded(self.band, _SWIZZLED_LINES)
        return lines if self.wide or lines <= _FEW_LINES else _rounded(lines, _INSTRUCTION_LINES)

    @property
    def shared_bytes(self) -> int:
        """Of a CTA: stages, two barriers for each, and what aligning the first costs."""
        stage = self.subs * (self.rows + self.lines) * _SUB_BYTES
        return self.stages * (stage + 2 * _BARRIER_BYTES) + _ALIGNMENT

    @property
    def depth(self) -> int:
        """Inputs of a stage, of which a product's depth is a multiple."""
        return self.subs * (WIDE_SUB if self.wide else SUB)

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.share * self.across

    @property
    def line_box(self) -> int:
        """Lines that a CTA loads at a time: all of a band, or its part where a stage has too few bands to hand out."""
        whole = self.subs % self.share == 0 or self.halves % self.share == 0
        return self.band if whole else _rounded(self.band, _SWIZZLED_LINES) // self.share

    def height(self, rows: int) -> int:
        """Return how many of a tile's rows are used, so that tiles share out evenly what there is.

        TMA is asked for no rows that there are not: it takes longer to fill these with zeros than to load
        others.
        """
        tiles = -(-rows // (self.rows * self.share)) * self.share
        return min(self.rows, _rounded(-(-rows // tiles), _SWIZZLED_LINES * self.across))

    @property
    def threads(self) -> int:
        """A warpgroup for each 64 rows, and a warp that loads; of more than two warpgroups one warp does both.

        What has sums of groups takes registers that three idle warps beside the loading one give up.
        """
        roomy = self.grouped and self.rows > _GROUP_ROWS
        loading = 0 if self.rows > _LOADING_ROWS else _GROUP_THREADS if roomy else _WARP_THREADS
        return self.rows // _GROUP_ROWS * _GROUP_THREADS + loading

    def tiles(self, rows: int, outputs: int) -> int:
        """Return how many tiles clusters have to take."""
        return -(-rows // (self.height(rows) * self.share)) * -(-outputs // (self.band * self.across))

    def grid(self, rows: int, outputs: int, processors: int) -> tuple[int, int]:
        """Return the CTAs: no more than run at once, each of which takes one tile after the other."""
        if self.cluster > _PAIR:
            processors -= processors % _GROUPED
        return min(self.tiles(rows, outputs), processors // self.cluster) * self.cluster, 1


HEAD_LINES = 24_576
"""A head is multiplied in pieces of no fewer lines, which are cut alike."""
Measured = dict[tuple[int, int, Kind], dict[int, PersistentTiling | None]]


def measured(weights: str) -> Measured:
    """Return the tilings for weights of a format: by product, for up to so many rows; None is the library."""
    found: Measured = {}
    for entry in cuts("tiles", weights):
        kind = Kind[entry.kind.upper()]
        cut = None
        if isinstance(entry.cut, dict):
            cut = PersistentTiling(kind=kind, wide=weights == "bf16", **entry.cut)
        found.setdefault((entry.lines, entry.depth, kind), {})[entry.rows] = cut
    return found


def few_cut(lines: int, depth: int, rows: int, kind: Kind, wide: bool) -> PersistentTiling:
    """Return the cut of a weight for up to 64 rows: every multiprocessor gets about as many bytes of it.

    Where a band has few lines, each CTA takes in more of rows than of the weight. In bfloat16 half as many CTAs are
    quicker then, in longer stages. Of more lines it was quicker that four CTAs load a whole tile of rows for one
    another, if all of them run at once.
    """
    halves = 1 + (kind == Kind.GATED)
    step, outputs = STORED_LINES // halves, lines // halves
    waves = -(-outputs // (_PROCESSORS * _MOST_BAND))
    band = _rounded(-(-outputs // (_PROCESSORS * waves)), step)
    cut = PersistentTiling(FEW_ROWS, band, 1, 1, kind, wide=wide)
    if not wide or halves > 1 or cut.lines > _FEW_LINES:
        return _staged(cut, depth, _STAGE_BYTES)
    if cut.lines <= _FEWEST_LINES:
        cut = cut._replace(band=_rounded(-(-outputs // (_PROCESSORS // 2)), _FEWEST_LINES))
    elif rows == FEW_ROWS and outputs <= _FOURS * cut.lines:
        cut = cut._replace(band=cut.lines, across=4)
    return _staged(cut, depth, _LONG_STAGE_BYTES)


def _staged(cut: PersistentTiling, depth: int, most_bytes: int) -> PersistentTiling:
    """Return a cut with as many stages as find room, of so many bytes at most."""
    stage = (cut.rows + cut.lines) * _SUB_BYTES
    subs = next(
        subs for subs in (4, 2, 1) if subs == 1 or (depth % (subs * cut.depth) == 0 and subs * stage <= most_bytes)
    )
    return cut._replace(subs=subs, stages=min(_MOST_STAGES, (_SHARED_BYTES - _ALIGNMENT) // (subs * stage)))


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
