"""Kernels that treat rows alone: norms, activation, gather, rotation, stores."""

from dataclasses import replace

import pytest
import torch

from services.common.kernels.embedding import kernel as embedding_kernel
from services.common.kernels.embedding import reference as embedding_reference
from services.common.kernels.linear import Normed
from services.common.kernels.rms_norm import kernel as norm_kernel
from services.common.kernels.rms_norm import reference as norm_reference
from services.common.kernels.rope import Frequencies, RotationTable, Yarn
from services.common.kernels.rope import kernel as rope_kernel
from services.common.kernels.span_attention import placed, placement, plan_span
from services.common.kernels.store_context import kernel as context_kernel
from services.common.kernels.store_context import store_context
from services.common.kernels.store_qkv import kernel as store_kernel
from services.common.kernels.store_qkv import reference as store_reference
from services.common.kernels.swiglu import kernel as swiglu_kernel
from services.common.kernels.swiglu import reference as swiglu_reference
from tests.kernels.gpu.devices import DEVICE, DTYPES, close, randn

EPS = 1e-6
VARIANTS = ((False, True, 0.0), (True, False, 0.0), (False, False, 0.0), (True, True, 1.0))
"""Bias, head norm and the norm's offset: Qwen3's, Qwen2's, Llama's, and all at once."""
YARN = Yarn(factor=4.0, original_positions=4, attention_factor=1.2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [48, 256])
def test_rms_norm(dtype: torch.dtype, width: int) -> None:
    x, weight = randn(5, width, dtype=dtype), randn(width, seed=2, dtype=dtype)
    close(norm_kernel.rms_norm(x, weight, EPS), norm_reference.rms_norm(x, weight, EPS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [48, 256])
def test_a_norm_begun_is_finished_by_who_follows(dtype: torch.dtype, width: int) -> None:
    x, weight, stream = (
        randn(5, width, dtype=dtype),
        randn(width, seed=2, dtype=dtype),
        randn(5, width, seed=3, dtype=dtype),
    )
    expected = norm_reference.rms_norm(x + stream, weight, EPS)
    squares = torch.zeros(5, dtype=torch.int64, device=DEVICE)
    normed = norm_kernel.begin_norm(x, stream, stream, weight, squares, EPS)
    assert normed.squares_T is not None
    scale = (normed.squares_T[:, None] * (2.0**-24 / width) + EPS).rsqrt()
    close((normed.rows_TD * scale).to(dtype), expected)


def test_a_poisoned_row_stays_alone() -> None:
    x, weight = randn(3, 64), randn(64, seed=2)
    x[1] = float("nan")
    out = norm_kernel.rms_norm(x, weight, EPS)
    assert out.isfinite().all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_with_an_offset(dtype: torch.dtype) -> None:
    """Zero-centred weights plus one, whole before they are multiplied."""
    x, weight = randn(5, 48, dtype=dtype), 0.2 * randn(48, seed=2, dtype=dtype)
    got = norm_kernel.rms_norm(x, weight, EPS, 1.0)
    close(got, norm_reference.rms_norm(x, weight, EPS, 1.0))
    close(got, norm_reference.rms_norm(x.float(), weight.float() + 1.0, EPS).to(dtype))


def test_rows_of_a_rotary_table_are_those_of_positions_that_lie_apart() -> None:
    """A chain of drafts asks for the column of a step; positions past the table take its last row."""
    cos, sin = randn(20, 8), randn(20, 8, seed=1)
    positions = torch.tensor([[3, 17, 4], [0, 5, 9], [19, 40, 2]], device=DEVICE)[:, 1]
    found_cos, found_sin = rope_kernel.table_rows(cos, sin, positions)
    for found, half in ((found_cos, cos), (found_sin, sin)):
        rows = half[torch.tensor([17, 5, 19], device=DEVICE)]
        close(found[:, 0, :8].abs(), rows.abs())
        close(found[:, 0, 8:], rows)


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(dtype: torch.dtype) -> None:
    gate_up = randn(3, 2 * 1100, dtype=dtype)
    close(swiglu_kernel.swiglu(gate_up), swiglu_reference.swiglu(gate_up.clone()))


def test_embedding_and_ids_out_of_range() -> None:
    table, ids = randn(20, 40), torch.tensor([3, 19, 0, 3], device=DEVICE)
    close(embedding_kernel.embedding(ids, table), embedding_reference.embedding(ids, table))
    half, scale = table.bfloat16(), 73.5
    close(embedding_kernel.embedding(ids, half, scale), embedding_reference.embedding(ids, half, scale))
    wild = torch.tensor([-1, 20, 2**40], device=DEVICE)
    close(embedding_kernel.embedding(wild, table), table[:1].expand(3, -1))


@pytest.mark.parametrize("norms", [0, 1, 6, 96])
def test_rows_begin_with_zeros_for_their_squares_and_know_which_are_padding(norms: int) -> None:
    table, ids = randn(20, 40), torch.tensor([3, 19, 0, 3, 7], device=DEVICE)
    slots = torch.tensor([0, 15, 16, 2**33, 17], device=DEVICE)
    rows, squares, live = embedding_kernel.begin_rows(ids, table, 1.0, norms, slots, 16)
    assert torch.equal(rows, embedding_kernel.embedding(ids, table))
    assert torch.equal(squares, torch.zeros((norms, len(ids)), dtype=torch.int64, device=DEVICE))
    assert live is not None and live.tolist() == [False, False, True, True, True]
    assert embedding_kernel.begin_rows(ids, table)[2] is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "size"), [(2, 16), (9, 24)])
def test_store_context(heads: int, size: int, dtype: torch.dtype) -> None:
    """Positions past the tables take their last row."""
    rows, layers = 6, 3
    mixed, weight = randn(rows, layers * 2 * heads * size, dtype=dtype), randn(layers, heads, size, seed=3, dtype=dtype)
    rotation = RotationTable(50, Frequencies.of(size, 1e4), torch.float32, DEVICE).at(
        torch.tensor([0, 1, 9, 49, 49, 70], device=DEVICE)
    )
    slots = torch.tensor([19, 4, 11, 0, 7, 12], device=DEVICE)
    kv = randn(layers, 2, 5, 4, heads, size, seed=1, dtype=dtype)
    expected = kv.clone()
    context_kernel.store_context(mixed, weight, rotation, kv, slots, EPS)
    store_context.reference(mixed, weight, rotation, expected, slots, EPS)
    close(kv, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("biased", "normed", "offset"), VARIANTS)
def test_store_qkv(biased: bool, normed: bool, offset: float, dtype: torch.dtype) -> None:
    rows, heads, kv_heads, size = 4, 4, 2, 16
    mixed = randn(rows, (heads + 2 * kv_heads) * size, dtype=dtype)
    weight = randn(heads + kv_heads, size, dtype=dtype) if normed else None
    bias = randn(mixed.shape[1], seed=3, dtype=dtype) if biased else None
    rotation = RotationTable(50, Frequencies.of(size, 1e4), torch.float32, DEVICE).at(
        torch.arange(rows, device=DEVICE) + 5
    )
    slots = torch.tensor([9, 10, 30, 0], device=DEVICE)
    kv = randn(2, 8, 4, kv_heads, size, seed=9, dtype=dtype)
    expected_kv = kv.clone()
    q = store_kernel.store_qkv(Normed(mixed), weight, rotation, kv, slots, EPS, bias, offset)
    close(q, store_reference.store_qkv(mixed, weight, rotation, expected_kv, slots, EPS, bias, offset))
    close(kv, expected_kv)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize(
    ("rows", "biased", "has_norm", "offset"),
    [(rows, *VARIANTS[0]) for rows in (3, 11, 16, 17, 32, 33)]
    + [(rows, *variant) for rows in (3, 17) for variant in VARIANTS[1:]],
)
def test_project_qkv(rows: int, divided: bool, biased: bool, has_norm: bool, offset: float, dtype: torch.dtype) -> None:
    """Few rows in two launches, up to thirty-two fused with the product, more in two again."""
    heads, kv_heads, size, width = 4, 2, 16, 48
    x, weight = randn(rows, width, dtype=dtype), randn((heads + 2 * kv_heads) * size, width, seed=1, dtype=dtype)
    weight *= width**-0.5  # of the size that a model's have: a rotation of large numbers cancels more than it leaves
    squares = None if divided else (x.double().pow(2).sum(-1) * 2**24).long()
    normed, norm = Normed(x, squares), randn(heads + kv_heads, size, seed=2, dtype=dtype) if has_norm else None
    bias = randn(len(weight), seed=3, dtype=dtype) if biased else None
    rotation = RotationTable(50, Frequencies.of(size, 1e4), torch.float32, DEVICE).at(
        torch.arange(rows, device=DEVICE) + 5
    )
    slots = torch.arange(rows, device=DEVICE) * 3 % 40
    kv = randn(2, 10, 4, kv_heads, size, seed=9, dtype=dtype)
    expected_kv = kv.clone()
    q = store_kernel.project_qkv(normed, weight, norm, rotation, kv, slots, EPS, bias, offset)
    close(q, store_reference.project_qkv(normed, weight, norm, rotation, expected_kv, slots, EPS, bias, offset))
    close(kv, expected_kv)


@pytest.mark.parametrize("width", [1, 5, 300])
@pytest.mark.parametrize("valid", [None, [3, 0, 1]])
def test_placement(width: int, valid: list[int] | None) -> None:
    table = torch.tensor([[3, 5, 0, 0], [0, 0, 0, 0], [7, 1, 2, 9]], dtype=torch.int32)
    lengths, count = torch.tensor([6, 0, 15]), None if valid is None else torch.tensor(valid)
    span = plan_span(table, lengths, width, 4, count)
    got = placement.place_span(
        table.to(DEVICE), lengths.to(DEVICE), width, 4, None if count is None else count.to(DEVICE)
    )
    for value, expected in zip(got, (span.positions_BW, span.slots_T, span.reach_B), strict=True):
        assert torch.equal(value.cpu(), expected)


@pytest.mark.parametrize(("batch", "columns", "width"), [(1, 3, 1), (3, 400, 5)])
def test_blocks_of_windows_lie_where_their_places_say(batch: int, columns: int, width: int) -> None:
    """As on a CPU, where operators say it; the pad block stays."""
    dice = torch.Generator().manual_seed(batch)
    places = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(1300, generator=dice)]).int()
    table = torch.randint(1301, (batch, columns), generator=dice, dtype=torch.int32)
    span = plan_span(table, torch.tensor([6, 0, 15][:batch]), width, 4)
    expected = placed(span, places)
    slots_T, table_BN = placement.place_near(span.slots_T.to(DEVICE), table.to(DEVICE), places.to(DEVICE), 4)
    assert torch.equal(slots_T.cpu(), expected.slots_T) and torch.equal(table_BN.cpu(), expected.block_table_BN)
    there = replace(span, slots_T=span.slots_T.to(DEVICE), block_table_BN=table.to(DEVICE))
    assert torch.equal(placed(there, places.to(DEVICE)).slots_T.cpu(), expected.slots_T)


def test_rows_of_the_rotation_tables() -> None:
    table = RotationTable(9, Frequencies.of(24, 1e4, YARN), torch.float32, "cpu")
    positions = torch.tensor([0, 8, 3, 40])
    expected = table.at(positions)
    tables = table.at(torch.arange(9))
    cos_PH, sin_PH = tables.cos_T1D[:, 0, 12:].to(DEVICE), tables.sin_T1D[:, 0, 12:].to(DEVICE)
    got = rope_kernel.table_rows(cos_PH.contiguous(), sin_PH.contiguous(), positions.to(DEVICE))
    assert torch.equal(got[0].cpu(), expected.cos_T1D)
    assert torch.equal(got[1].cpu(), expected.sin_T1D)
