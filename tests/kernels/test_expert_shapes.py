"""How the work of experts in CUDA C++ is cut: all outputs have a piece, and a CTA finds room."""

import re

import pytest

from services.common.kernels.experts.alone import source as alone
from services.common.kernels.experts.tiles import source as tiles

MOST_SHARED, BESIDE = 227 * 1024, 75 * 1024
"""Bytes of a multiprocessor for CTAs, and of one of a router's product."""
SIZES = (2048, 768, 128, 8), (2048, 512, 256, 8), (2048, 512, 512, 10), (1024, 384, 6, 3), (4096, 1536, 128, 8)
"""Numbers of a row and of an inner part, experts, and those of a row."""


def numbers_of(build: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"constexpr int (\w+) = (\d+);", build)}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("followed", [False, True])
def test_a_row_alone_finds_room_beside_the_routers_product(
    sizes: tuple[int, int, int, int], coded: bool, followed: bool
) -> None:
    shape = alone.Shape(*sizes, True, coded, coded, followed, followed)
    if not shape.fits():
        assert shape.lines > 240 or shape.down > 32
        return
    assert shape.shared_bytes + 1024 + BESIDE <= MOST_SHARED
    assert shape.ctas <= 132 and shape.threads <= 512 and shape.stages >= 4
    assert shape.up % 8 == 0 and shape.down % 16 == 0
    built = numbers_of(alone.source_of(shape).build)
    assert (built["UP"], built["DOWN"], built["STAGES"]) == (shape.up, shape.down, shape.stages)


def test_shapes_of_rows_that_others_serve() -> None:
    """Inputs that fill no stage, codes of more groups than a lane has scales of, and rows of many numbers."""
    assert alone.Shape(2048, 768, 128, 8, True).fits()
    assert not alone.Shape(2816, 704, 128, 8, True, coded=True, short=True).fits()
    assert not alone.Shape(8192, 768, 128, 8, True, coded=True, short=True).fits()
    assert not alone.Shape(2048, 768, 1024, 8, True).fits()


@pytest.mark.parametrize("coded", [False, True])
def test_a_tile_finds_room(coded: bool) -> None:
    for depth, outputs, gated in ((2048, 768, True), (768, 2048, False), (512, 2048, False)):
        shape = tiles.TileShape(depth, outputs, 8, gated, coded, coded)
        assert shape.fits() and shape.shared_bytes <= MOST_SHARED
        assert shape.stages == (3 if coded else 4)
        assert shape.band * (2 if gated else 1) == tiles.LINES
    assert not tiles.TileShape(2048 + 32, 768, 8, True, coded, coded).fits()
    assert not tiles.TileShape(2048, 760, 8, True, coded, coded).fits()
