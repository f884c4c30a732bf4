"""Many rows by experts in tiles of CUDA C++: the bits of the programs in Triton."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from unittest import mock

import pytest
import torch

from services.common.kernels.experts import kernel
from services.common.kernels.experts.kernel import ExpertStack, Routes, multiply_experts, route
from services.common.kernels.experts.tiles.kernel import tile_shape
from services.common.kernels.experts.tiling import Tiling, tiling
from services.common.kernels.linear import Normed
from tests.gpu.test_experts_alone import EPS, KINDS, stack_of
from tests.kernels.gpu.devices import randn

COUNT, TOP_K, TRITON = 6, 3, Tiling(32, depth=128)
TILES = tiling(2048 * 8, 128)
HIGHER = Tiling(16, depth=128), Tiling(64, depth=128), Tiling(64, depth=128, more=32)


def normed_rows(rows: int, hidden: int, waits: bool) -> Normed:
    x_TD = randn(rows, hidden, seed=rows, dtype=torch.bfloat16)
    return Normed(x_TD, (x_TD.double().square().sum(1) * 2.0**24).round().long() if waits else None)


def routes_of(kind: str, rows: int) -> Routes:
    """Spread over all experts; all to the same; and every third row is padding."""
    live_T = torch.arange(rows, device="cuda") % 3 != 1 if kind == "padded" else None
    gates_TF = randn(rows, 16, seed=9, dtype=torch.bfloat16)
    if kind == "one":
        gates_TF[:, :TOP_K] += 20.0
    return route(gates_TF, live_T, COUNT, TOP_K, renorm=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("hidden", "inner"), [(256, 128), (384, 384), (2048, 768)])
@pytest.mark.parametrize("rows", [17, 230, 301, 700])
def test_tiles_have_the_bits_of_programs(kind: str, hidden: int, inner: int, rows: int) -> None:
    """Tiles are full, have few rows, or some more than the usual; an expert may have several or none."""
    stack = stack_of(kind, hidden, inner, COUNT)
    for spread in ("all", "one", "padded"):
        for waits in (True, False):
            normed, routes = normed_rows(rows, hidden, waits), routes_of(spread, rows)
            expected = multiply_experts(normed, routes, stack, EPS, TRITON)
            again = replace(routes, none_1=torch.zeros(1, dtype=torch.int32, device="cuda"))
            got = multiply_experts(normed, again, stack, EPS, TILES)
            taken_TK = routes.ids_TK < COUNT
            assert torch.equal(got[taken_TK], expected[taken_TK]), (spread, waits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("hidden", "inner"), [(256, 128), (384, 384), (2048, 768)])
@pytest.mark.parametrize("rows", [2, 3, 8, 16, 17, 33, 80])
def test_low_tiles_have_the_bits_of_programs(kind: str, hidden: int, inner: int, rows: int) -> None:
    """Of sixteen rows at most, whose places are made with the choice, and of more; experts may have several tiles."""
    stack = stack_of(kind, hidden, inner, COUNT)
    for spread, waits in product(("all", "one", "padded"), (True, False)):
        normed = normed_rows(rows, hidden, waits)
        got = {}
        for programs in (True, False):
            with mock.patch.object(kernel, "tile_shape", return_value=None) if programs else nullcontext():
                for cut in (TRITON, *HIGHER) if rows > 16 else (TRITON,):
                    routes = routes_of(spread, rows)
                    parts_TKD = multiply_experts(normed, routes, stack, EPS, cut)
                    got[programs, cut] = parts_TKD[routes.ids_TK < COUNT]
        first, *others = got.values()
        assert all(torch.equal(first, other) for other in others), (spread, waits)


def test_products_that_programs_serve() -> None:
    """Tiles of other sizes, and types that TMA is not told of."""
    stack = stack_of("numbers", 256, 128, COUNT)
    x_TD = randn(8, 256, dtype=torch.bfloat16)
    given = stack.gate_up_EFD, None
    assert tile_shape(x_TD, *given, TILES.places, TOP_K, 128) is not None
    assert tile_shape(x_TD, *given, 32, TOP_K, 128) is None
    assert tile_shape(x_TD.float(), *given, TILES.places, TOP_K, 128) is None
    assert tile_shape(x_TD[:, :40].contiguous(), *given, TILES.places, TOP_K, 128) is None


def test_a_stack_elsewhere_is_multiplied_by_programs() -> None:
    """Of experts that a table places the bits are the same."""
    stack, rows = stack_of("numbers", 256, 128, COUNT), 400
    sizes = torch.tensor([[256 * 256], [128 * 256]], device="cuda")
    at_2E = torch.arange(COUNT, device="cuda")[None] * sizes // 8
    placed = ExpertStack(stack.gate_up_EFD, stack.down_EDF, at_2E)
    routes, normed = routes_of("all", rows), normed_rows(rows, 256, waits=True)
    expected = multiply_experts(normed, routes, stack, EPS, TILES)
    again = replace(routes, none_1=torch.zeros(1, dtype=torch.int32, device="cuda"))
    assert torch.equal(multiply_experts(normed, again, placed, EPS, TILES), expected)
