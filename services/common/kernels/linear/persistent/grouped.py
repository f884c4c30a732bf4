"""How products by e4m3 codes, of rows in such codes, are divided among CTAs that take tiles: by a rule."""

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import FEW_ROWS, SUB, PersistentTiling

GROUP = 128
"""Inputs that share a scale, of rows and of the weight, and lines of the weight that do."""
_PROCESSORS, _STEP = 132, 16
_TILE_ROWS, _MOST_LINES, _FEW_LINES = 128, 128, 96
"""Rows and lines of a tile: a thread has sums of all inputs, and of each group of a stage."""
_SHARED_BYTES, _STAGE_BYTES, _MOST_STAGES = 230_400, 64 * 1024, 16
_SUMS = 384
"""Of two rows that a thread has registers for: of the groups of a stage, and of all inputs."""
_FIXED_LINES = 32
"""What a tile costs beside its lines, in lines."""


def grouped_cut(lines: int, depth: int, rows: int, kind: Kind) -> PersistentTiling | None:
    """Return how a product is cut; None where its weight has no such scales.

    Of up to 64 rows a tile has all, and what counts is that every multiprocessor gets as much of the weight. Of more
    rows two CTAs load lines for one another; up to 128 each has half of the rows, and up to 256 where bands are narrow.
    """
    halves = 1 + (kind == Kind.GATED)
    outputs = lines // halves
    if depth % GROUP or outputs % GROUP:
        return None
    share = 1 if rows <= FEW_ROWS else 2
    height = FEW_ROWS if rows <= 2 * FEW_ROWS else _TILE_ROWS
    tiles, processors, step = -(-rows // (share * height)), _PROCESSORS // share, _STEP // halves
    bands = range(step, (_FEW_LINES if share == 1 else _MOST_LINES) // halves + 1, step)

    def cost(band: int) -> tuple[int, int]:
        waves = -(-tiles * -(-outputs // band) // processors)
        return waves * (band * halves + _FIXED_LINES), -band

    band = min(bands, key=cost)
    if height > FEW_ROWS and rows <= 2 * _TILE_ROWS and 2 * band * halves <= _MOST_LINES:
        height, band = FEW_ROWS, 2 * band
    cut = PersistentTiling(height, band, 1, 1, kind, share=share, grouped=True)
    stage = (cut.rows + cut.lines) * SUB
    most = min(_SUMS // cut.lines - 1, _STAGE_BYTES // stage)
    subs = next((subs for subs in (4, 2) if subs <= most and depth % (subs * GROUP) == 0), 1)
    return cut._replace(subs=subs, stages=min(_MOST_STAGES, _SHARED_BYTES // (subs * stage + 16)))
