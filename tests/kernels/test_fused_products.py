"""Own products of some hundred rows: what is cut fits a multiprocessor, and where the library stays."""

from __future__ import annotations

import pytest

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.fused.tiling import SUB, fused_cut

SHARED_BYTES, PROCESSORS, REGISTERS, WARP = 232_448, 132, 65_536, 32
OUT, DOWN, GATE_UP = (2560, 4096, Kind.ADDED), (2560, 9728, Kind.ADDED), (19456, 2560, Kind.GATED)


@pytest.mark.parametrize("weight", [OUT, DOWN, GATE_UP])
@pytest.mark.parametrize("rows", [128, 256])
def test_a_cut_fills_the_gpu_in_one_wave_and_fits_each_part_of_it(weight: tuple[int, int, Kind], rows: int) -> None:
    lines, depth, kind = weight
    cut = fused_cut(lines, depth, rows, kind)
    if cut is None:
        assert rows == 256
        return
    outputs = lines // 2 if cut.gated else lines
    across, down = cut.grid(rows, outputs)
    assert 0.9 * PROCESSORS < across * down <= PROCESSORS
    assert across // cut.share * cut.band >= outputs
    assert down * cut.share * cut.rows >= rows
    assert depth % (cut.subs * SUB) == 0
    assert cut.shared_bytes <= SHARED_BYTES
    # A thread holds half as many sums as lines; a quarter of a multiprocessor has a quarter of warps and registers.
    parts = -(-cut.threads // (4 * WARP))
    assert cut.lines // 2 + 24 <= REGISTERS // 4 // WARP // parts


@pytest.mark.parametrize("rows", [64, 65, 96, 108, 129, 192, 257, 512, 2048])
def test_rows_that_would_leave_much_of_a_tile_empty_go_through_the_library(rows: int) -> None:
    assert all(fused_cut(lines, depth, rows, kind) is None for lines, depth, kind in (OUT, DOWN, GATE_UP))


def test_other_weights_and_ends_go_through_the_library() -> None:
    assert fused_cut(2560, 2560, 128, Kind.ADDED) is None
    for lines, depth, kind in (OUT, DOWN, GATE_UP):
        assert all(fused_cut(lines, depth, 128, other) is None for other in Kind if other != kind)
