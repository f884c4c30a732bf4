"""A row that is alone through its experts in one launch: the bits of the launches that serve other rows."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.experts.alone.kernel import mix_alone, shape_alone, words_alone
from services.common.kernels.experts.kernel import ExpertStack, Rating, combine, multiply_experts, route
from services.common.kernels.experts.scales import ExpertScales
from services.common.kernels.linear import Normed
from services.common.kernels.linear.packed_weight import dealt, nearest_codes
from tests.kernels.gpu.devices import randn

EPS = 1e-6
SIZES = (2048, 768, 16, 8), (2048, 512, 40, 10), (1024, 384, 6, 3)
"""Numbers of a row and of an inner part, experts, and those of a row."""
KINDS = "numbers", "codes", "codes with long scales"


def stack_of(kind: str, hidden: int, inner: int, count: int) -> ExpertStack:
    first = randn(count, 2 * inner, hidden, seed=3, dtype=torch.bfloat16) * 0.02
    second = randn(count, hidden, inner, seed=4, dtype=torch.bfloat16) * 0.02
    if kind == "numbers":
        return ExpertStack(first, second)
    (one, own), (other, last) = (coded(stack, kind == "codes with long scales") for stack in (first, second))
    return ExpertStack(one, other, scales=(own, last))


def coded(stack_EFD: Tensor, long: bool) -> tuple[Tensor, ExpertScales]:
    found = [codes for weight_FD in stack_EFD if (codes := nearest_codes(weight_FD)) is not None]
    assert len(found) == len(stack_EFD)
    codes_EFD = torch.stack([dealt(one.codes_FD).flatten(1) for one in found])
    scales = [one.scale_FG * (1.01 if long else 1.0) for one in found]
    return codes_EFD, ExpertScales.of(scales, codes_EFD.device)


def gates_of(count: int, seed: int) -> Tensor:
    """Of some rows alike: equal ones, NaN, and one that is infinite."""
    gates_TF = randn(1, -(-count // 16) * 16, seed=seed, dtype=torch.bfloat16)
    if seed % 7 == 1:
        gates_TF[0, 2:] = gates_TF[0, 1]
    if seed % 7 == 2:
        gates_TF[0, 1] = float("nan")
    if seed % 7 == 3:
        gates_TF[0, 4] = float("inf")
    return gates_TF


def same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("renorm", [True, False])
def test_a_row_has_the_bits_of_other_launches(sizes: tuple[int, int, int, int], kind: str, renorm: bool) -> None:
    """Live or padding, chosen with ties and with what is no number; nothing is left behind, but for the mark."""
    hidden, inner, count, top_k = sizes
    stack, uses = stack_of(kind, hidden, inner, count), torch.zeros(2, count, dtype=torch.int32, device="cuda")
    norm_D = randn(hidden, seed=5, dtype=torch.bfloat16)
    for seed in range(40):
        x_TD, gates_TF = randn(1, hidden, seed=seed, dtype=torch.bfloat16), gates_of(count, seed)
        normed = Normed(x_TD, None if seed % 5 == 4 else (x_TD.double().square().sum(1) * 2.0**24).round().long())
        live_T, offset = torch.tensor([seed % 11 != 6], device="cuda"), float(seed % 2)
        streams = randn(1, hidden, seed=seed + 100, dtype=torch.bfloat16).repeat(2, 1).split(1)
        sums = torch.zeros(2, 1, dtype=torch.int64, device="cuda")
        routes = route(gates_TF, live_T, count, top_k, renorm, uses[0])
        parts_TKD = multiply_experts(normed, routes, stack, EPS)
        expected = combine(parts_TKD, routes, None, None, streams[0], norm_D, sums[0], EPS, offset)
        shape = shape_alone(normed, gates_TF, stack, Rating(), count, top_k, renorm)
        assert shape is not None
        ends = streams[1], norm_D, sums[1], EPS, offset
        got = mix_alone(
            normed, gates_TF, live_T, stack, Rating(), shape, uses[1], *ends, shared_gated=False, early=False
        )
        assert same(got[1], expected[1]) and same(got[0].rows_TD, expected[0].rows_TD), seed
        assert torch.equal(sums[0], sums[1]) or bool(expected[1].isnan().any()), seed
    assert torch.equal(uses[0], uses[1])
    assert shape is not None and words_alone(shape.words, x_TD.device)[:2].tolist() == [0, 0]


@pytest.mark.parametrize("rating", ["softmax", "sigmoids", "bounded"])
@pytest.mark.parametrize("gated", [True, False])
def test_a_row_that_takes_one_expert_more_has_the_same_bits(rating: str, gated: bool) -> None:
    """It lies behind the others; they may be rated by sigmoids and a bias, and weights have a factor then."""
    hidden, inner, count, top_k = 2048, 512, 40, 8
    every = stack_of("numbers", hidden, inner, count + 1)
    stack = ExpertStack(every.gate_up_EFD[:count], every.down_EDF[:count], followed=True)
    bias_E = None if rating == "softmax" else randn(count, seed=8, dtype=torch.bfloat16)
    own = Rating(bias_E, cap=30.0 if rating == "bounded" else 0.0, factor=1.0 if rating == "softmax" else 2.5)
    norm_D = randn(hidden, seed=5, dtype=torch.bfloat16)
    for seed in range(40):
        x_TD, gates_TF = randn(1, hidden, seed=seed, dtype=torch.bfloat16), gates_of(count + 1, seed)
        normed = Normed(x_TD, (x_TD.double().square().sum(1) * 2.0**24).round().long())
        streams = randn(1, hidden, seed=seed + 100, dtype=torch.bfloat16).repeat(2, 1).split(1)
        sums = torch.zeros(2, 1, dtype=torch.int64, device="cuda")
        routes = route(gates_TF, None, count, top_k, True, None, own, followed=True)
        parts_TKD = multiply_experts(normed, routes, stack, EPS)
        gate_T = gates_TF[:, count] if gated else None
        expected = combine(parts_TKD, routes, parts_TKD[:, top_k], gate_T, streams[0], norm_D, sums[0], EPS)
        shape = shape_alone(normed, gates_TF, stack, own, count, top_k, renorm=True)
        assert shape is not None
        ends = streams[1], norm_D, sums[1], EPS, 0.0
        got = mix_alone(normed, gates_TF, None, stack, own, shape, None, *ends, shared_gated=gated, early=False)
        assert same(got[1], expected[1]) and same(got[0].rows_TD, expected[0].rows_TD), seed
        assert torch.equal(sums[0], sums[1]) or bool(expected[1].isnan().any()), seed


def test_rows_that_others_serve() -> None:
    """More rows, weights of each expert, and experts that a table places."""
    stack, gates_TF = stack_of("numbers", 1024, 384, 6), gates_of(6, 0)
    normed, scale_E = Normed(randn(1, 1024, dtype=torch.bfloat16)), randn(6, dtype=torch.bfloat16)
    two = Normed(randn(2, 1024, dtype=torch.bfloat16))
    at = ExpertStack(stack.gate_up_EFD, stack.down_EDF, torch.zeros(2, 6, dtype=torch.int64, device="cuda"))
    assert shape_alone(normed, gates_TF, stack, Rating(), 6, 3, renorm=True)
    assert shape_alone(two, gates_TF, stack, Rating(), 6, 3, renorm=True) is None
    assert shape_alone(normed, gates_TF, stack, Rating(scale_E=scale_E), 6, 3, renorm=True) is None
    assert shape_alone(normed, gates_TF, at, Rating(), 6, 3, renorm=True) is None
