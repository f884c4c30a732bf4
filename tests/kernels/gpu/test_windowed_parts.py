"""What blocks of models with windows need beside attention: the kernels against their references."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from services.common.kernels.cap_logits import bounded
from services.common.kernels.cap_logits import kernel as cap_kernel
from services.common.kernels.experts.kernel import (
    FEW,
    BesideNorms,
    Rating,
    Routes,
    combine,
    combine_beside,
    multiply_experts,
    route,
)
from services.common.kernels.experts.reference import combined, rated, routed, taken
from services.common.kernels.head_gates import gate_heads
from services.common.kernels.head_gates import kernel as gate_kernel
from services.common.kernels.linear import Normed, linear_gated
from services.common.kernels.linear.ends import end_rows
from services.common.kernels.linear.reference import linear_gated as linear_gated_reference
from services.common.kernels.rms_norm.reference import rms_norm
from services.common.kernels.rope import Frequencies, RotationTable
from services.common.kernels.sandwich import add_normed
from services.common.kernels.sandwich import kernel as sandwich_kernel
from services.common.kernels.store_qkv import kernel as store_kernel
from services.common.kernels.store_qkv import reference as store_reference
from tests.kernels.gpu.devices import DEVICE, DTYPES, close, near, randn
from tests.kernels.gpu.test_experts import COUNT, EPS, TOP_K, divided, rows_of, stack

ROWS, WIDTH = 5, 48


def finished(normed: Normed, dtype: torch.dtype) -> Tensor:
    """The rows of a norm that was begun."""
    assert normed.squares_T is not None
    return (normed.rows_TD * (normed.squares_T[:, None] * (2.0**-24 / normed.width) + EPS).rsqrt()).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("offset", "scaled"), [(0.0, True), (1.0, False)])
def test_a_result_is_normalised_before_it_is_added(dtype: torch.dtype, offset: float, scaled: bool) -> None:
    fed, stream = (randn(ROWS, WIDTH, seed=seed, dtype=dtype) for seed in (1, 2))
    own, following = (randn(WIDTH, seed=seed, dtype=dtype) for seed in (3, 4))
    scale = torch.full((1,), 0.3, dtype=dtype, device=DEVICE) if scaled else None
    squares = torch.zeros(ROWS, dtype=torch.int64, device=DEVICE)
    before = stream.clone()
    normed, total = sandwich_kernel.add_normed(fed, stream, own, following, squares, EPS, offset, scale)
    wide = None if scale is None else scale.float()
    around = own.float(), following.float()
    expected, sum_ = add_normed.reference(fed.float(), stream.float(), *around, squares, EPS, offset, wide)
    near(total, sum_.double())
    near(finished(normed, dtype), expected.rows_TD.double())
    assert torch.equal(stream, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_are_multiplied_by_their_gates(dtype: torch.dtype) -> None:
    mixed, gates = randn(ROWS, 3 * 16, dtype=dtype), 6 * randn(ROWS, 3, seed=2, dtype=dtype)
    gates[0] = torch.tensor([-90.0, 90.0, 0.0])
    expected = gate_heads.reference(mixed.float(), gates.float())
    near(gate_kernel.gate_heads(mixed, gates), expected.double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_gates_behind_other_lines_wait_for_their_norm(dtype: torch.dtype) -> None:
    """With the bits of gates that a product of its own has divided by the norm's root."""
    normed, mixed = rows_of(ROWS, 48, dtype), randn(ROWS, 3 * 16, dtype=dtype)
    lines = randn(ROWS, 16, seed=2, dtype=dtype)
    one = end_rows(lines.clone(), normed, None, EPS)[:, 8:11]
    expected = gate_kernel.gate_heads(mixed.clone(), one)
    assert torch.equal(gate_kernel.gate_heads(mixed.clone(), lines[:, 8:11], normed, EPS), expected)
    near(expected, gate_heads.reference(mixed.clone(), lines[:, 8:11], normed, EPS).double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_of_logits(dtype: torch.dtype) -> None:
    """Logits that differ in the model's type still do, and in the same order."""
    logits = torch.linspace(-60, 90, 300).to(dtype).to(DEVICE)[None].repeat(2, 1)
    found = cap_kernel.bounded(logits, 30.0)
    close(found, bounded.reference(logits, 30.0))
    assert found.dtype == torch.float32
    assert torch.equal(found[0].diff() > 0, logits[0].float().diff() > 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [3, 70])
def test_a_gate_by_gelu(dtype: torch.dtype, rows: int) -> None:
    normed, weight = rows_of(rows, WIDTH, dtype), randn(2 * 24, WIDTH, seed=3, dtype=dtype)
    expected = linear_gated_reference(Normed(divided(normed)), weight.float(), EPS, gelu=True)
    near(linear_gated(normed, weight, EPS, gelu=True), expected.double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_values_are_normalised(dtype: torch.dtype) -> None:
    heads, kv_heads, size = 4, 2, 24
    mixed = randn(ROWS, (heads + 2 * kv_heads) * size, dtype=dtype)
    weight = randn(heads + kv_heads, size, seed=2, dtype=dtype)
    slots = torch.arange(4, 4 + ROWS, device=DEVICE)
    rotation = RotationTable(64, Frequencies.of(size, 1e4), torch.float32, DEVICE).at(slots)

    def stored(kernel: ModuleType) -> tuple[Tensor, Tensor]:
        kv = torch.zeros(2, 4, 4, kv_heads, size, dtype=dtype, device=DEVICE)
        if kernel is store_kernel:
            return kernel.store_qkv(Normed(mixed), weight, rotation, kv, slots, EPS, v_norm=True), kv
        eye = torch.eye(mixed.shape[1], dtype=dtype, device=DEVICE)
        return kernel.project_qkv(Normed(mixed), eye, weight, rotation, kv, slots, EPS, v_norm=True), kv

    for found, expected in zip(stored(store_kernel), stored(store_reference), strict=True):
        close(found, expected)


def rating(dtype: torch.dtype, sigmoid: bool, count: int) -> Rating:
    if sigmoid:
        return Rating(bias_E=randn(count, seed=7, dtype=dtype), cap=2.0, factor=2.5)
    return Rating(scale_E=randn(count, seed=7, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sigmoid", [True, False])
@pytest.mark.parametrize(("rows", "count"), [(5, 6), (FEW + 1, 6), (FEW, 130)])
def test_rows_choose_as_the_reference(dtype: torch.dtype, sigmoid: bool, rows: int, count: int) -> None:
    """By sigmoids with a bias, of equal ones the lowest, and by a softmax whose weights each expert scales."""
    gates, how = randn(rows, count + 10, dtype=dtype), rating(dtype, sigmoid, count)
    if how.bias_E is not None:
        how.bias_E[1:4] = how.bias_E[0]
    gates[1, :count] = gates[1, 0]
    found = route(gates, None, count, TOP_K, True, rating=how)
    logits = gates[:, :count]
    ids, weights = routed(logits, TOP_K, True) if how.bias_E is None else rated(logits, how.bias_E, TOP_K, how.cap)
    assert found.ids_TK.tolist() == ids.tolist()
    weights = weights * how.factor * (1.0 if how.scale_E is None else how.scale_E.float()[ids])
    close(found.weights_TK, weights)


def test_few_rows_choose_with_the_same_bits_as_many() -> None:
    gates, how = randn(40, 144), rating(torch.float32, True, 130)
    many = route(gates, None, 130, TOP_K, True, rating=how)
    for first, rows in ((0, 1), (1, 2), (3, FEW)):
        few = route(gates[first : first + rows], None, 130, TOP_K, True, rating=how)
        assert torch.equal(few.ids_TK, many.ids_TK[first : first + rows])
        assert torch.equal(few.weights_TK, many.weights_TK[first : first + rows])


def test_a_row_of_nan_gets_experts_that_there_are() -> None:
    gates = randn(2, 16)
    gates[0, 2] = float("nan")
    found = route(gates, None, COUNT, TOP_K, True, rating=rating(torch.float32, True, COUNT))
    assert found.ids_TK.max() < COUNT
    assert found.weights_TK[0].isnan().all()
    assert found.weights_TK[1].isfinite().all()


def mixture(dtype: torch.dtype) -> tuple[Routes, Tensor, Tensor]:
    """Where rows go, what their experts by GELU make of them, and the weighted sum of that by the reference."""
    normed, own = rows_of(ROWS, WIDTH, dtype), stack(WIDTH, 32, dtype)
    routes = route(randn(ROWS, 16, seed=9, dtype=dtype), None, COUNT, TOP_K, True)
    parts = multiply_experts(normed, routes, own, EPS, gelu=True)
    weights = own.gate_up_EFD.float(), own.down_EDF.float()
    wide = combined(taken(divided(normed), routes.ids_TK.long(), *weights, gelu=True), routes.weights_TK)
    return routes, parts, wide


@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_beside_a_dense_part(dtype: torch.dtype) -> None:
    """Both results are normalised, and their sum again."""
    routes, parts, mixed = mixture(dtype)
    dense, stream = (randn(ROWS, WIDTH, seed=seed, dtype=dtype) for seed in (11, 12))
    norms = BesideNorms(*(randn(WIDTH, seed=seed, dtype=dtype) for seed in (13, 14, 15, 16)))
    scale, squares = torch.full((1,), 0.5, dtype=dtype, device=DEVICE), torch.zeros(ROWS, dtype=torch.int64).to(DEVICE)
    _, total = combine_beside(parts, routes, dense, stream, norms, squares, EPS, 0.0, scale)
    both = rms_norm(dense.float(), norms.dense_D.float(), EPS) + rms_norm(mixed, norms.mixed_D.float(), EPS)
    near(total, (0.5 * (stream.float() + rms_norm(both, norms.own_D.float(), EPS))).double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_shared_expert_without_a_gate(dtype: torch.dtype) -> None:
    routes, parts, mixed = mixture(dtype)
    shared, stream = (randn(ROWS, WIDTH, seed=seed, dtype=dtype) for seed in (11, 12))
    expected = stream.float() + mixed + shared.float()
    squares, norm = torch.zeros(ROWS, dtype=torch.int64, device=DEVICE), randn(WIDTH, seed=13, dtype=dtype)
    _, total = combine(parts, routes, shared, None, stream, norm, squares, EPS)
    near(total, expected.double())
