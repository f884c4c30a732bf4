"""What orders a row's sums in attention and products is the same for any rows, batch and chunk."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import Normed, int8_kernel
from services.common.kernels.linear import kernel as products
from services.common.kernels.linear.int8_weight import quantised, quantised_rows
from services.common.kernels.linear.tiling import int8_cut
from services.common.kernels.span_attention import kernel as attention
from services.common.kernels.span_attention import plan_context, plan_span
from services.common.kernels.span_attention.splits import MOST_SPLITS, TILE_TOKENS, split_tokens
from services.target.device.exact import shape

KV_HEADS, GROUP, SIZE, BLOCK_SIZE, COLUMNS = 2, 4, 64, 16, 40
PLACED = {"WIDTH", "TILE", "PROGRAMS", "PARTS", "ROWS", "num_warps", "num_stages"}
"""Which program computes a row and which sums it leaves to a second launch, and how far ahead it asks for keys."""
CHUNKS = (32, 512, 2048)
Launch = tuple[str, int, dict[str, Any]]


class Recorder:
    """Takes the place of a kernel and notes its grid's dimensions, its constants and its options."""

    def __init__(self, name: str, launches: list[Launch]) -> None:
        self._name, self._launches = name, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **named: Any) -> None:
            constants = {name: value for name, value in named.items() if not isinstance(value, Tensor)}
            self._launches.append((self._name, len(grid), constants))

        return launch


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    found: list[Launch] = []
    for module, name in ((attention, "attend_kernel"), (attention, "merge_kernel"), (products, "linear_kernel")):
        monkeypatch.setattr(module, name, Recorder(name, found))
    for name in ("library_product", "swiglu", "begin_norm"):
        monkeypatch.setattr(products, name, lambda *args: args[0])
    return found


def attended(
    batch: int, width: int, in_block: bool, short: bool, launches: list[Launch]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kernels of one attention, and what orders their sums."""
    launches.clear()
    table = torch.ones((batch, COLUMNS), dtype=torch.int32)
    plan = plan_context if in_block else plan_span
    span = replace(plan(table, torch.full((batch,), 70), width, BLOCK_SIZE), short=short)
    q, kv = torch.zeros(batch, width, KV_HEADS * GROUP, SIZE), torch.zeros(2, 2, BLOCK_SIZE, KV_HEADS, SIZE)
    rows = torch.zeros(batch, width, KV_HEADS, SIZE)
    if in_block:
        attention.attend_block(q, rows, rows, kv, span)
    else:
        attention.attend_span(q, kv, span)
    for name, _, constants in launches:
        yield name, {key: value for key, value in constants.items() if key not in PLACED}


@pytest.mark.parametrize("in_block", [False, True])
def test_keys_are_tiled_and_split_alike(in_block: bool, launches: list[Launch]) -> None:
    by_kernel: dict[str, list[dict[str, Any]]] = {}
    shapes = [*product((1, 2, 8, 32, 128), (1, 4, 6, 8, 12, 16)), *((1, chunk) for chunk in CHUNKS if not in_block)]
    every_shape = [(batch, width, False) for batch, width in shapes] + [(32, width, True) for width in (1, 6, 16)]
    for batch, width, short in every_shape:
        for name, decided in attended(batch, width, in_block, short, launches):
            by_kernel.setdefault(name, []).append(decided)
    assert by_kernel.keys() == {"attend_kernel", "merge_kernel"}
    for name, every in by_kernel.items():
        assert all(decided == every[0] for decided in every), name
        assert every[0]["TOKENS"] == TILE_TOKENS
        assert every[0]["SPLITS"] == MOST_SPLITS


def test_splits_follow_what_a_row_sees() -> None:
    sizes = [split_tokens(seen) for seen in range(1, 100_000)]
    for seen, size in enumerate(sizes, 1):
        assert size % TILE_TOKENS == 0 and -(-seen // size) <= MOST_SPLITS
    assert sizes == sorted(sizes)


def test_the_check_at_start_looks_where_splits_grow() -> None:
    assert shape.TILE_TOKENS == TILE_TOKENS
    assert all(split_tokens(edge) < split_tokens(edge + 1) for edge in shape.EDGES[1:])


WEIGHTS = [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728), (512, 256), (96, 33)]


@pytest.mark.parametrize(("outputs", "depth"), WEIGHTS)
def test_products_add_their_whole_depth_in_one_program(outputs: int, depth: int, launches: list[Launch]) -> None:
    """A grid of one dimension has a program for each band of outputs and none for a share of the depth."""
    weight = torch.empty((outputs, depth), dtype=torch.bfloat16)
    for rows in (1, 2, 6, 12, 15, 16, 17, 32, 33, 48, 64):
        launches.clear()
        x_TD = torch.zeros((rows, depth), dtype=torch.bfloat16)
        products.linear(x_TD, weight)
        products.linear_gated(Normed(x_TD), weight, 1e-6)
        products.linear_added(x_TD, weight, x_TD.new_zeros(rows, outputs), x_TD.new_zeros(outputs), 1e-6)
        for _, dimensions, constants in launches:
            assert dimensions == 1
            assert "SHARES" not in constants


@pytest.mark.parametrize(("outputs", "depth"), WEIGHTS)
def test_products_in_eight_bits_have_a_program_for_a_tile_of_rows_and_a_band(
    outputs: int, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none for a share of the depth."""
    grids: list[tuple[int, ...]] = []

    class Grids(Recorder):
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return super().__getitem__(grid)

    monkeypatch.setattr(int8_kernel, "linear_kernel", Grids("", []))
    monkeypatch.setattr(int8_kernel, "quantised_rows", quantised_rows)
    weight = quantised(torch.zeros((outputs, depth), dtype=torch.bfloat16))
    for rows in (1, 16, 17, 33, 64, 65, 129, 300):
        grids.clear()
        int8_kernel.linear(torch.zeros((rows, depth), dtype=torch.bfloat16), weight)
        cut = int8_cut(outputs, rows)
        assert grids == [(-(-rows // cut.rows), -(-outputs // cut.band))]
