"""A mixture of experts: the kernels against their reference, and a row's bits in any company."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.experts.kernel import (
    FEW,
    ExpertStack,
    Places,
    Routes,
    combine,
    multiply_experts,
    route,
    sort,
)
from services.common.kernels.experts.reference import combined, routed, taken
from services.common.kernels.experts.tiling import Tiling, most_tiles, tiling
from services.common.kernels.linear import Normed
from services.common.kernels.linear.kernel import linear, linear_gated
from services.common.kernels.linear.tiling import Tiling as Cut
from services.common.kernels.rms_norm.reference import add_rms_norm
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED, close, near, randn

EPS, COUNT, TOP_K = 1e-6, 6, 3
SHAPES = ((48, 32), (64, 24))
"""Hidden and inner columns: whole tiles of none, and of both."""
SMALL = Tiling(16, band=64, depth=32)


def stack(hidden: int, inner: int, dtype: torch.dtype, count: int = COUNT) -> ExpertStack:
    return ExpertStack(
        randn(count, 2 * inner, hidden, seed=3, dtype=dtype) * 0.2,
        randn(count, hidden, inner, seed=4, dtype=dtype) * 0.2,
    )


def rows_of(count: int, hidden: int, dtype: torch.dtype) -> Normed:
    """Rows that wait for their norm."""
    x_TD = randn(count, hidden, seed=5, dtype=dtype)
    return Normed(x_TD, (x_TD.double().square().sum(1) * 2.0**24).round().long())


def divided(normed: Normed) -> Tensor:
    assert normed.squares_T is not None
    mean_T1 = normed.squares_T[:, None] * (2.0**-24 / normed.width)
    return normed.rows_TD.float() * (mean_T1 + EPS).rsqrt()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "features"), [(6, 16), (130, 144)])
@pytest.mark.parametrize("renorm", [False, True])
@pytest.mark.parametrize("rows", [5, FEW + 1])
def test_rows_choose_as_the_reference(dtype: torch.dtype, count: int, features: int, renorm: bool, rows: int) -> None:
    """One program for all rows, and one for each."""
    gates_TF = randn(rows, features, dtype=dtype)
    gates_TF[1, :count] = gates_TF[1, 0]
    gates_TF[2, 1:4] = 9.0
    got = route(gates_TF, None, count, TOP_K, renorm)
    ids_TK, weights_TK = routed(gates_TF[:, :count], TOP_K, renorm)
    assert got.ids_TK.tolist() == ids_TK.tolist()
    assert got.ids_TK[1].tolist() == [0, 1, 2]
    close(got.weights_TK, weights_TK)


@pytest.mark.parametrize("count", [COUNT, 130])
@pytest.mark.parametrize("renorm", [False, True])
def test_few_rows_choose_with_the_same_bits_as_many(count: int, renorm: bool) -> None:
    gates_TF = randn(40, 144)
    many = route(gates_TF, None, count, TOP_K, renorm)
    for first, rows in ((0, 1), (1, 2), (3, FEW), (20, 7)):
        few = route(gates_TF[first : first + rows], None, count, TOP_K, renorm)
        assert torch.equal(few.ids_TK, many.ids_TK[first : first + rows])
        assert torch.equal(few.weights_TK, many.weights_TK[first : first + rows])


@pytest.mark.parametrize("rows", [1, 3, FEW])
def test_few_rows_have_the_places_that_sorting_gives(rows: int) -> None:
    """Some of them are padding; an expert may have its rows in any order."""
    live_T = torch.arange(rows, device=DEVICE) % 3 != 1
    routes = route(randn(rows, 16, seed=9), live_T, COUNT, TOP_K, renorm=True)
    few, sorted_ = sort(routes, SMALL), sort(replace(routes, places=None), SMALL)
    assert routes.places is few and sorted_ is not few
    tiles = int(few.count_1)
    assert tiles == int(sorted_.count_1) == len(routes.ids_TK[live_T].unique())
    assert listed(few) == listed(sorted_)


def listed(places: Places) -> dict[int, list[list[int]]]:
    """Which pairs each expert's tiles hold; experts take tiles in any order."""
    held: dict[int, list[list[int]]] = {}
    tiles = places.tiles_2N[:, : int(places.count_1)].T.tolist()
    for (expert, taken_), order in zip(tiles, places.order_NR.tolist(), strict=False):
        held.setdefault(expert, []).append(order[:taken_])
    return held


@pytest.mark.parametrize("cut", [SMALL, replace(SMALL, more=16), Tiling(32, more=16)])
@pytest.mark.parametrize("rows", [FEW + 1, 150])
def test_every_pair_has_one_place_among_those_of_its_expert(cut: Tiling, rows: int) -> None:
    """In the order of rows, in tiles of which the last alone is not full."""
    live_T = torch.arange(rows, device=DEVICE) % 5 != 1
    routes = route(randn(rows, 16, seed=9), live_T, COUNT, TOP_K, renorm=True)
    places, ids_P = sort(routes, cut), routes.ids_TK.flatten().tolist()
    assert int(places.count_1) <= places.tiles
    expected: dict[int, list[list[int]]] = {}
    for expert in range(COUNT):
        own = [pair for pair, chosen in enumerate(ids_P) if chosen == expert]
        tiles = [own[first : first + cut.places] for first in range(0, len(own), cut.places)]
        expected |= {expert: tiles} if tiles else {}
    assert listed(places) == expected


@pytest.mark.parametrize("rows", [4, FEW + 1])
def test_padding_gets_no_expert_and_a_row_of_nan_stays_within_the_list(rows: int) -> None:
    gates_TF, live_T = randn(rows, 16), torch.arange(rows, device=DEVICE) != 1
    gates_TF[2], gates_TF[3, 2] = float("nan"), float("inf")
    got = route(gates_TF, live_T, COUNT, TOP_K, renorm=True)
    alone = route(gates_TF[3:4], None, COUNT, TOP_K, renorm=True)
    assert got.ids_TK[1].tolist() == [COUNT] * TOP_K
    assert got.ids_TK[2].tolist() == got.ids_TK[3].tolist() == alone.ids_TK[0].tolist() == [0, 1, 2]
    assert got.weights_TK.isnan().any(1).tolist() == [False, False, True, True] + [False] * (rows - 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("hidden", "inner"), SHAPES)
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_parts_are_those_of_the_reference(dtype: torch.dtype, hidden: int, inner: int, rows: int) -> None:
    normed, weights = rows_of(rows, hidden, dtype), stack(hidden, inner, dtype)
    routes = route(randn(rows, 16, seed=9), None, COUNT, TOP_K, renorm=True)
    got_TKD = multiply_experts(normed, routes, weights, EPS, SMALL)
    gate_up_EFD, down_EDF = weights.gate_up_EFD.float(), weights.down_EDF.float()
    near(got_TKD, taken(divided(normed), routes.ids_TK.long(), gate_up_EFD, down_EDF))


def test_all_rows_may_choose_one_expert_and_most_experts_none() -> None:
    """Forty rows in tiles of sixteen; the other experts have no tile."""
    normed, weights = rows_of(40, 48, torch.float32), stack(48, 32, torch.float32, 20)
    ids_TK = torch.tensor([[7, 19]], dtype=torch.int32, device=DEVICE).repeat(40, 1)
    routes = Routes(ids_TK, torch.ones(40, 2, device=DEVICE), 20)
    got_TKD = multiply_experts(normed, routes, weights, EPS, SMALL)
    close(got_TKD, taken(divided(normed), ids_TK.long(), weights.gate_up_EFD, weights.down_EDF))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("shared", [False, True])
def test_parts_are_added_to_the_stream(dtype: torch.dtype, offset: float, shared: bool) -> None:
    parts_TKD, stream_TD, norm_D = randn(4, 3, 48, dtype=dtype), randn(4, 48, seed=1, dtype=dtype), randn(48, seed=2)
    routes = Routes(torch.zeros(4, 3, dtype=torch.int32, device=DEVICE), randn(4, 3, seed=6), COUNT)
    routes.ids_TK[1] = COUNT
    parts_TKD[1] = float("nan")
    shared_TD, gates_TF = randn(4, 48, seed=7, dtype=dtype), randn(4, 16, seed=8, dtype=dtype)
    plain_TKD = parts_TKD.clone().float()
    plain_TKD[1] = 0.0
    added_TD = combined(plain_TKD, routes.weights_TK)
    if shared:
        added_TD = added_TD + shared_TD.float() * gates_TF[:, 5:6].float().sigmoid()
    expected_TD, total_TD = add_rms_norm(added_TD, stream_TD.float(), norm_D, EPS, offset)
    squares_T = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    gate_T = gates_TF[:, 5] if shared else None
    normed, got_TD = combine(
        parts_TKD, routes, shared_TD if shared else None, gate_T, stream_TD, norm_D.to(dtype), squares_T, EPS, offset
    )
    near(got_TD, total_TD)
    near(divided(normed).to(dtype), expected_TD)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_in_any_company(dtype: torch.dtype) -> None:
    """Alone, in tiles of other sizes, among others that choose as it does, beside padding and beside NaN."""
    hidden, inner, looked_at = 48, 32, (0, 9, 19)
    normed, weights, gates_TF = rows_of(20, hidden, dtype), stack(hidden, inner, dtype), randn(20, 16, seed=9)
    gates_TF[8:16] = gates_TF[0]

    def run(
        chosen: list[int], live: list[bool] | None = None, poison: int | None = None, cut: Tiling = SMALL
    ) -> tuple[Tensor, Tensor]:
        assert normed.squares_T is not None
        rows_TD = normed.rows_TD[chosen].clone()
        if poison is not None:
            rows_TD[poison] = float("nan")
        live_T = None if live is None else torch.tensor(live, device=DEVICE)
        routes = route(gates_TF[chosen], live_T, COUNT, TOP_K, renorm=True)
        parts_TKD = multiply_experts(Normed(rows_TD, normed.squares_T[chosen]), routes, weights, EPS, cut)
        squares_T = torch.zeros(len(chosen), dtype=torch.int64, device=DEVICE)
        stream_TD, norm_D = torch.zeros_like(rows_TD), torch.ones(hidden, dtype=dtype, device=DEVICE)
        return parts_TKD, combine(parts_TKD, routes, None, None, stream_TD, norm_D, squares_T, EPS)[1]

    every = list(range(20))
    parts_TKD, total_TD = run(every)
    for cut in (Tiling(32, band=32, depth=32), replace(SMALL, more=16), Tiling(32, depth=32, more=16)):
        assert torch.equal(run(every, cut=cut)[0], parts_TKD)
    for row in looked_at:
        alone_1KD, alone_1D = run([row])
        assert torch.equal(alone_1KD[0], parts_TKD[row])
        assert torch.equal(alone_1D[0], total_TD[row])
    padded_TKD, padded_TD = run(every, [row % 3 != 2 for row in every])
    for row in looked_at:
        assert torch.equal(padded_TKD[row], parts_TKD[row])
        assert torch.equal(padded_TD[row], total_TD[row])
    assert not padded_TD[2].any()
    _, poisoned_TD = run(every, poison=8)
    assert torch.equal(poisoned_TD[9:], total_TD[9:])
    assert torch.equal(poisoned_TD[:8], total_TD[:8])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, FEW])
def test_an_expert_behind_the_others_has_the_bits_of_products_of_its_own(dtype: torch.dtype, rows: int) -> None:
    """Every row takes it, padding too; the other experts' parts, places and uses are as without it."""
    hidden, inner = 64, 32
    normed, weights = rows_of(rows, hidden, dtype), stack(hidden, inner, dtype, COUNT + 1)
    others = ExpertStack(weights.gate_up_EFD[:COUNT], weights.down_EDF[:COUNT], followed=True)
    gates_TF, live_T = randn(rows, 16, seed=9), torch.arange(rows, device=DEVICE) % 3 != 1
    uses = [torch.zeros(COUNT, dtype=torch.int32, device=DEVICE) for _ in range(2)]
    routes = route(gates_TF, live_T, COUNT, TOP_K, True, uses[0], followed=True, early=True)
    parts_TKD = multiply_experts(normed, routes, others, EPS, SMALL)
    # The interpreter adds up a step's columns as its library likes, so steps are alike; a GPU chooses its own too.
    alike = Cut(32, 2 * SMALL.depth // normed.rows_TD.itemsize)
    for cut in (alike,) if INTERPRETED else (alike, None):
        inner_TI = linear_gated(normed, weights.gate_up_EFD[COUNT], EPS, cut=cut)
        shared_TD = linear(inner_TI, weights.down_EDF[COUNT], cut=cut)
        assert torch.equal(parts_TKD[:, TOP_K], shared_TD)
    alone = route(gates_TF, live_T, COUNT, TOP_K, True, uses[1])
    expected_TKD = multiply_experts(normed, alone, others, EPS, SMALL)
    assert torch.equal(parts_TKD[live_T, :TOP_K], expected_TKD[live_T])
    assert torch.equal(uses[0], uses[1]) and torch.equal(routes.weights_TK, alone.weights_TK)
    squares_T = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    norm_D, streams = torch.ones(hidden, dtype=dtype, device=DEVICE), [torch.zeros_like(shared_TD) for _ in range(2)]
    combine(parts_TKD, routes, parts_TKD[:, TOP_K], None, streams[0], norm_D, squares_T, EPS)
    combine(expected_TKD, alone, shared_TD, None, streams[1], norm_D, squares_T, EPS)
    assert torch.equal(streams[0], streams[1])


@pytest.mark.parametrize("rows", [1, 5, FEW])
@pytest.mark.parametrize("followed", [False, True])
def test_an_expert_is_counted_once_a_forward_in_which_it_has_rows(rows: int, followed: bool) -> None:
    """However many they are, padding left out, and behind what was counted before."""
    uses_E = torch.arange(COUNT, dtype=torch.int32, device=DEVICE)
    expected_E = uses_E.clone()
    for seed in range(3):
        gates_TF, live_T = randn(rows, 16, seed=seed), torch.arange(rows, device=DEVICE) % 3 != 1 + seed
        routes = route(gates_TF, live_T, COUNT, TOP_K, True, uses_E, followed=followed)
        counts_E = torch.bincount(routes.ids_TK[live_T].flatten(), minlength=COUNT)
        expected_E += (counts_E > 0).int()
    assert torch.equal(uses_E, expected_E)


@pytest.mark.parametrize("pairs", [1, 8, 300, 4096])
@pytest.mark.parametrize("experts", [6, 128])
def test_the_grid_has_room_for_every_tile(pairs: int, experts: int) -> None:
    """However pairs lie: evenly, all with one expert, or one with each and the rest with one."""
    even = torch.arange(pairs, dtype=torch.int32) % experts
    one_each = torch.where(torch.arange(pairs) < experts, even, 0).int()
    for cut in (tiling(pairs, experts), Tiling(128, more=32)):
        for ids_P in (even, torch.zeros_like(even), one_each):
            counts = torch.bincount(ids_P, minlength=experts)
            needed = int((-(-counts // cut.places)).sum())
            assert needed <= most_tiles(pairs, experts, cut)
