"""How the work of experts in CUDA C++ is cut: all outputs have a piece, and a CTA finds room."""

import re
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from services.common.kernels.experts.alone import kernel as alone_kernel
from services.common.kernels.experts.alone import source as alone
from services.common.kernels.experts.kernel import ExpertStack, Rating
from services.common.kernels.experts.scales import ExpertScales
from services.common.kernels.experts.tiles import kernel as tiles_kernel
from services.common.kernels.experts.tiles import source as tiles
from services.common.kernels.experts.tiling import tiling
from services.common.kernels.normed import Normed

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


@pytest.mark.parametrize(("places", "fewer", "stages"), [(16, 16, 5), (32, 16, 4), (64, 32, 3)])
def test_two_low_tiles_of_codes_find_room_at_once(places: int, fewer: int, stages: int) -> None:
    """Each has as many bytes on their way as a multiprocessor gets in a microsecond, or more."""
    for depth, outputs, gated in ((2048, 768, True), (768, 2048, False), (512, 2048, False)):
        shape = tiles.TileShape(depth, outputs, 8, gated, True, True, places)
        assert shape.fits() and 2 * (shape.shared_bytes + 1024) <= MOST_SHARED + 1024
        assert shape.stages == stages and shape.ctas == 2 and shape.band * (2 if gated else 1) == shape.lines
        built = numbers_of(tiles.source_of(shape).build)
        assert (built["PLACES"], built["FEWER"], built["LINES"], built["CTAS"]) == (places, fewer, 128, 2)
        assert not tiles.TileShape(depth, outputs, 8, gated, True, True, 128).fits()


@pytest.fixture
def every_gpu() -> Iterator[None]:
    """Tensors of a GPU that takes all kernels; their memory is nowhere."""
    usable = [patch.object(module, "_usable", lambda *_: True) for module in (alone_kernel, tiles_kernel)]
    with patch.object(Tensor, "is_cuda", True), usable[0], usable[1]:
        yield


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def scales_of(shift: int) -> ExpertScales:
    return ExpertScales(numbers(8, 1, 1, dtype=torch.int32), shift, True)


def stack_of(
    hidden: int = 2048, inner: int = 768, shift: int | None = None, at_2E: Tensor | None = None
) -> ExpertStack:
    if shift is None:
        return ExpertStack(numbers(8, 2 * inner, hidden), numbers(8, hidden, inner), at_2E)
    scales = scales_of(shift)
    codes = numbers(8, 2 * inner, hidden, dtype=torch.uint8), numbers(8, hidden, inner, dtype=torch.uint8)
    return ExpertStack(*codes, scales=(scales, scales))


def alone_of(
    stack: ExpertStack, rows: int = 1, rating: Rating | None = None, dtype: torch.dtype = torch.bfloat16
) -> alone.Shape | None:
    normed = Normed(numbers(rows, stack.down_EDF.shape[1], dtype=dtype))
    gates_TF = numbers(rows, 16, dtype=dtype)
    return alone_kernel.shape_alone(normed, gates_TF, stack, rating or Rating(), 8, 3, True)


@pytest.mark.usefixtures("every_gpu")
def test_only_a_row_alone_of_shapes_that_fit_is_one_launch() -> None:
    """Not two rows, other types, experts that weigh otherwise or lie elsewhere, or scales of fewer than eight lines."""
    assert alone_of(stack_of()) and alone_of(stack_of(shift=3)) and alone_of(stack_of(), rating=Rating(numbers(8)))
    others = [alone_of(stack_of(), rows) for rows in (0, 2, 16)]
    others += [alone_of(stack_of(), dtype=dtype) for dtype in (torch.float32, torch.float16)]
    others += [alone_of(stack_of(), rating=Rating(scale_E=numbers(8)))]
    others += [alone_of(stack_of(), rating=Rating(numbers(8, dtype=torch.float32)))]
    others += [alone_of(stack_of(at_2E=numbers(2, 8, dtype=torch.int64))), alone_of(stack_of(shift=2))]
    others += [alone_of(stack_of(hidden=2048 + 32)), alone_of(stack_of(hidden=8192)), alone_of(stack_of(inner=720))]
    assert set(others) == {None}


@pytest.mark.usefixtures("every_gpu")
def test_prompts_and_few_rows_of_codes_go_by_tiles() -> None:
    """The cut of long prompts has the places that a tile has; those of fewer rows do, where they are codes."""
    x_TD, one = numbers(64, 2048), scales_of(4)
    for coded, pairs in ((coded, pairs) for coded in (False, True) for pairs in (3, 8, 128, 2048, 8192, 16384, 65536)):
        stack, places = stack_of(shift=4 if coded else None), tiling(pairs, 128, coded).places
        scales = one if coded else None
        shape = tiles_kernel.tile_shape(x_TD, stack.gate_up_EFD, scales, places, 8, 768)
        assert (shape is not None) == (coded or pairs >= 128 * 64), (coded, pairs)
        assert shape is None or shape.places == places
    stack = stack_of()
    for x in (numbers(64, 2048, dtype=torch.float32), numbers(64, 2048 + 32)):
        assert tiles_kernel.tile_shape(x, stack.gate_up_EFD, None, tiles.PLACES, 8, 768) is None


@pytest.mark.usefixtures("every_gpu")
@pytest.mark.parametrize(
    ("places", "inner", "shift"), [(tiles.PLACES, 768, 4), (tiles.PLACES, None, 5), (16, 768, 3), (16, None, 4)]
)
def test_tiles_take_scales_of_all_that_a_warp_ends(places: int, inner: int | None, shift: int) -> None:
    """Of the first product, which is gated, and of the last one, where there is no inner part."""
    depth, outputs, lines = (2048, inner, 2 * inner) if inner else (768, 2048, 2048)
    x_TD, weight_EFD = numbers(64, depth), numbers(8, lines, depth, dtype=torch.uint8)
    shapes = [
        tiles_kernel.tile_shape(x_TD, weight_EFD, scales_of(each), places, 8, outputs) for each in (shift - 1, shift)
    ]
    assert shapes[0] is None and shapes[1] is not None


def test_no_row_on_a_cpu_asks_for_a_gpu() -> None:
    with patch.object(torch.cuda, "get_device_capability", lambda *_: pytest.fail("there is no GPU")):
        assert alone_of(stack_of()) is None
        assert tiles_kernel.tile_shape(numbers(64, 2048), numbers(8, 1536, 2048), None, tiles.PLACES, 8, 768) is None
