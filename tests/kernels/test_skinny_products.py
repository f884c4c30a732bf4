"""Products of few rows in CUDA C++: what is cut fits a multiprocessor, and where the programs in Triton stay."""

from __future__ import annotations

import pytest

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.skinny.tiling import MEASURED, ROWS, SUB, Band, SkinnyTiling, skinny_cut
from tests.support.cases import each

SHARED_BYTES, PROCESSORS = 232_448, 132
UNDER_WAY = 96 * 1024
"""Bytes that a multiprocessor must ask for at a time, or memory's answer is waited for."""
WEIGHTS = [
    (6144, 2560, Kind.PLAIN), (2560, 4096, Kind.ADDED), (19456, 2560, Kind.GATED), (2560, 9728, Kind.ADDED),
    (12352, 2560, Kind.PLAIN), (18432, 2560, Kind.GATED), (34816, 5120, Kind.GATED), (4096, 2560, Kind.GATES),
]  # fmt: skip


def cut(lines: int, depth: int, rows: int, kind: Kind) -> SkinnyTiling:
    found = skinny_cut(lines, depth, rows, kind)
    assert found is not None
    return found


def bands(own: SkinnyTiling, lines: int) -> list[Band]:
    """Of each CTA, in order."""
    ctas, _ = own.grid(lines // 2 if own.kind == Kind.GATED else lines)
    return [own.leading] * own.leaders + [own.band] * (ctas - own.leaders)


@each(("lines", "depth", "kind"), WEIGHTS)
@each("rows", [1, 8, 9, 16, 31, 32])
def test_a_cut_fits_and_covers_every_line(lines: int, depth: int, kind: Kind, rows: int) -> None:
    own = cut(lines, depth, rows, kind)
    assert own.rows >= rows and own.rows in ROWS
    covered = sum(band.lines for band in bands(own, lines))
    assert covered >= lines > covered - own.band.lines
    assert all(depth % (band.subs * SUB) == 0 for band in (own.leading, own.band))
    assert own.shared_bytes <= SHARED_BYTES


@each(("lines", "depth", "kind"), WEIGHTS)
@each("rows", ROWS)
def test_memory_is_kept_busy(lines: int, depth: int, kind: Kind, rows: int) -> None:
    """CTAs of one wave are alone on theirs; of several waves two are there at a time."""
    own = cut(lines, depth, rows, kind)
    ctas = bands(own, lines)
    beside = SHARED_BYTES // own.shared_bytes
    assert beside == (1 if len(ctas) <= PROCESSORS else 2)
    step_bytes = [band.subs * (rows + band.lines) * SUB * 2 for band in ctas]
    under_way = [beside * (band.stages - 1) * step for band, step in zip(ctas, step_bytes, strict=True)]
    assert sum(under_way) > UNDER_WAY * 0.9 * PROCESSORS
    if not own.leaders:
        assert len(ctas) > 0.9 * PROCESSORS and min(under_way) >= UNDER_WAY


@pytest.mark.parametrize(("lines", "depth", "kind"), list(MEASURED))
def test_bands_of_two_sizes_are_one_wave_of_whole_boxes(lines: int, depth: int, kind: Kind) -> None:
    """A box begins where the swizzle does; of a gated weight it holds eight lines of either half, or several such."""
    for rows in MEASURED[lines, depth, kind]:
        own = cut(lines, depth, rows, kind)
        assert own.leaders and len(bands(own, lines)) <= PROCESSORS
        assert own.leading.lines % own.box == 0 and own.band.lines % own.box == 0
        assert own.box % (16 if kind == Kind.GATED else 8) == 0
        assert own.leaders * own.leading.lines < lines


@pytest.mark.parametrize(("lines", "depth"), [(2048, 4096), (2048, 8192), (2048, 6144)])
@pytest.mark.parametrize("experts", [64, 128, 256, 512])
def test_a_router_begins_beside_the_product_before_it(lines: int, depth: int, experts: int) -> None:
    """Its CTAs fill multiprocessors that the few rows of that product leave, with memory for them enough."""
    before, router = skinny_cut(lines, depth, 1, Kind.ADDED, routed=True), cut(experts, lines, 1, Kind.PLAIN)
    assert before is not None
    (ctas, _), (routers, _) = before.grid(lines), router.grid(experts)
    beside = SHARED_BYTES // router.shared_bytes
    assert ctas * before.band.lines >= lines and ctas + -(-routers // beside) <= PROCESSORS
    assert ctas * before.band.stages * before.band.subs * before.band.lines * SUB * 2 >= UNDER_WAY / 2 * PROCESSORS


def test_more_rows_are_cut_alike_whatever_follows() -> None:
    for rows in (9, 16, 32):
        assert skinny_cut(2048, 4096, rows, Kind.ADDED, routed=True) == cut(2048, 4096, rows, Kind.ADDED)


def test_a_weight_that_was_not_measured_has_equal_bands() -> None:
    own = cut(6144, 2560, 8, Kind.PLAIN)
    assert own.leaders == 0 and own.leading == own.band and own.box == own.band.lines


@pytest.mark.parametrize(
    ("lines", "depth", "rows", "kind"),
    [
        (2560, 4096, 33, Kind.ADDED),
        (151936, 2560, 1, Kind.PLAIN),
        (2560, 4100, 1, Kind.ADDED),
        (2562, 4096, 1, Kind.PLAIN),
        (24, 128, 1, Kind.GATED),
    ],
)
def test_other_products_go_elsewhere(lines: int, depth: int, rows: int, kind: Kind) -> None:
    assert skinny_cut(lines, depth, rows, kind) is None
