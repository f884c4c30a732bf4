"""Products of rows and codes of FP8 in tiles: each cut is one of its weight, and compiles as it was meant."""

import re
from itertools import product

from services.common.kernels import nvrtc
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.grouped import GROUP, grouped_cut
from services.common.kernels.linear.persistent.launch import source_of

PROCESSORS = 132
SHAPES = (
    (6144, 4096, Kind.PLAIN), (4096, 4096, Kind.ADDED), (24576, 4096, Kind.GATED), (4096, 12288, Kind.ADDED),
    (6144, 2560, Kind.PLAIN), (19456, 2560, Kind.GATED), (2560, 9728, Kind.ADDED), (5120, 25600, Kind.ADDED),
    (51200, 5120, Kind.GATED), (2560, 640, Kind.PLAIN), (768, 1152, Kind.ADDED), (1536, 512, Kind.GATED),
)  # fmt: skip
"""Lines, depth, and what follows: of Qwen3's 8B, 4B and 32B, and some whose bands scales end in."""
ROWS = (1, 16, 64, 65, 128, 129, 256, 512, 1024, 4096)


def test_tiles_hold_all_rows_and_lines() -> None:
    for (lines, depth, kind), rows in product(SHAPES, ROWS):
        cut = grouped_cut(lines, depth, rows, kind)
        assert cut is not None
        outputs, height = lines // cut.halves, cut.height(rows)
        assert cut.tiles(rows, outputs) * height * cut.share * cut.band >= rows * outputs
        assert cut.grid(rows, outputs, PROCESSORS)[0] % cut.cluster == 0
        assert depth % (cut.subs * GROUP) == 0
        assert cut.stages >= 3
        assert cut.shared_bytes <= 232_448


def test_what_is_cut_compiles_without_spilling(full: bool) -> None:
    """Where the compiler finds no other way every product waits for the one before, and it says so."""
    cuts = list(dict.fromkeys(grouped_cut(*shape[:2], rows, shape[2]) for shape in SHAPES for rows in ROWS))
    for cut in filter(None, cuts if full else cuts[4::15]):
        source = source_of(cut)
        said = nvrtc.report(source.text, "product", source.headers())
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", said), f"{cut}: {said}"
        assert "serialized" not in said, f"{cut}: products wait for one another"
