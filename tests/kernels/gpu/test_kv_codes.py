"""Keys and values in eight bits: kernels store the reference's codes, and attend with the bits of what these mean."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.kv_codes.reference import coded, widened
from services.common.kernels.linear import Normed
from services.common.kernels.rope import Frequencies, RotationTable
from services.common.kernels.span_attention import Mask, kernel, plan_span
from services.common.kernels.span_attention.cut import Cut
from services.common.kernels.store_qkv import kernel as store_kernel
from tests.kernels.gpu.devices import DEVICE, DTYPES, randn

EPS = 1e-6
BLOCK_SIZE, BLOCKS, COLUMNS = 4, 60, 24
LENGTHS = [3, 37, 5]
HARD = (0.0, 1.0, -127 / 64, 1.984375 + 2**-16, 2.0**-140, -(2.0**-126), 2.0**60, 2.0**127, float("inf"), float("nan"))


def spread(rows: int, lines: int, size: int, dtype: torch.dtype) -> Tensor:
    """Products [T, F] whose heads differ in size by powers of two, with the hard numbers in some of them."""
    x = randn(rows, lines // size, size, dtype=torch.float32)
    x *= torch.exp2(torch.arange(rows * lines // size, device=DEVICE) % 40 - 20.0).view(rows, -1, 1)
    for index, value in enumerate(HARD):
        x[index % rows, -1 - index // rows, index % size] = value
    return x.reshape(rows, lines).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "kv_heads", "size", "biased"), [(5, 2, 16, False), (3, 9, 24, True)])
def test_what_is_stored_is_the_code_of_what_would_have_been(
    rows: int, kv_heads: int, size: int, biased: bool, dtype: torch.dtype
) -> None:
    heads = 2 * kv_heads
    mixed = Normed(spread(rows, (heads + 2 * kv_heads) * size, size, dtype))
    norm = randn(heads + kv_heads, size, seed=2, dtype=dtype) if not biased else None
    bias = randn(mixed.rows_TD.shape[1], seed=3, dtype=dtype) if biased else None
    rotation = RotationTable(50, Frequencies.of(size, 1e4), torch.float32, DEVICE).at(torch.arange(rows, device=DEVICE))
    slots = torch.tensor([9, 10, 30, 0, 17][:rows], device=DEVICE)
    shape = (2, 8, 4, kv_heads, size)
    kv = torch.zeros(shape, dtype=dtype, device=DEVICE)
    codes = torch.full(shape, 77, dtype=torch.int8, device=DEVICE)
    exponents = torch.full(shape[:-1], 5, dtype=torch.int8, device=DEVICE)
    q = store_kernel.store_qkv(mixed, norm, rotation, kv, slots, EPS, bias)
    got = store_kernel.store_qkv(mixed, norm, rotation, codes, slots, EPS, bias, exponents_2NSH=exponents)
    assert torch.equal(got.view(torch.int8), q.view(torch.int8))
    for part in range(2):
        expected = coded(kv[part].flatten(0, 1)[slots].cpu())
        assert torch.equal(codes[part].flatten(0, 1)[slots].cpu(), expected[0])
        assert torch.equal(exponents[part].flatten(0, 1)[slots].cpu(), expected[1])
    others = torch.ones(32, dtype=torch.bool)
    others[slots.cpu()] = False
    assert (codes.flatten(1, 2)[:, others] == 77).all() and (exponents.flatten(1, 2)[:, others] == 5).all()


def test_a_projection_stores_codes_where_heads_are_stored_by_the_product() -> None:
    """Codes take a launch behind it."""
    rows = 11
    heads, kv_heads, size, width = 4, 2, 16, 48
    x, weight = randn(rows, width), randn((heads + 2 * kv_heads) * size, width, seed=1)
    rotation = RotationTable(50, Frequencies.of(size, 1e4), torch.float32, DEVICE).at(torch.arange(rows, device=DEVICE))
    slots = torch.arange(rows, device=DEVICE)
    codes = torch.zeros((2, 10, 4, kv_heads, size), dtype=torch.int8, device=DEVICE)
    exponents = torch.zeros(codes.shape[:-1], dtype=torch.int8, device=DEVICE)
    kv = torch.zeros(codes.shape, device=DEVICE)
    q = store_kernel.project_qkv(Normed(x), weight, None, rotation, codes, slots, EPS, None, 0.0, exponents)
    plain = store_kernel.project_qkv(Normed(x), weight, None, rotation, kv, slots, EPS)
    torch.testing.assert_close(q, plain)
    got = widened(codes.cpu(), exponents.cpu(), torch.float32).flatten(1, 2)[:, :rows]
    top = kv.cpu().flatten(1, 2)[:, :rows].abs().amax(-1, keepdim=True)
    assert bool(((got - kv.cpu().flatten(1, 2)[:, :rows]).abs() <= top / 64).all())


def tables(width: int) -> Tensor:
    """Give every sequence just the blocks that it needs, none of them in order; the last sequence is a pad row."""
    table, free = torch.zeros(len(LENGTHS), COLUMNS, dtype=torch.int32), list(range(BLOCKS - 1, 0, -1))
    for column in range(COLUMNS):
        for row, length in enumerate(LENGTHS[:-1]):
            if column * BLOCK_SIZE < length + width:
                table[row, column] = free.pop(0)
    return table.to(DEVICE)


def poisoned(table: Tensor, counts: list[int], kv_heads: int, size: int) -> tuple[Tensor, Tensor]:
    """Codes of all values with exponents of many, and heads that are NaN wherever no sequence has written."""
    generator = torch.Generator().manual_seed(5)
    shape = (2, BLOCKS, BLOCK_SIZE, kv_heads, size)
    codes = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    exponents = torch.full(shape[:-1], 127, dtype=torch.int8)
    for row, count in enumerate(counts[:-1]):
        places = torch.arange(count)
        blocks = table[row].cpu().long()[places // BLOCK_SIZE]
        drawn = torch.randint(-11, -5, (2, count, kv_heads), generator=generator, dtype=torch.int8)
        exponents[:, blocks, places % BLOCK_SIZE] = drawn
    return codes.to(DEVICE), exponents.to(DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("width", "kv_heads", "size", "window", "programs"),
    [(1, 1, 24, 0, 0), (2, 2, 16, 0, 1), (2, 1, 16, 9, 2)],
)
def test_attention_has_the_bits_of_attention_to_what_codes_mean(
    width: int, kv_heads: int, size: int, window: int, programs: int, dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if programs:
        monkeypatch.setattr(kernel, "cut_span", lambda *shape: Cut(16, programs))
    table, counts = tables(width), [length + width for length in LENGTHS]
    codes, exponents = poisoned(table, counts, kv_heads, size)
    kv = widened(codes.cpu(), exponents.cpu(), dtype).to(DEVICE)
    q = randn(len(LENGTHS), width, 2 * kv_heads, size, dtype=dtype)
    lengths = torch.tensor(LENGTHS, device=DEVICE)
    span = plan_span(table, lengths, width, BLOCK_SIZE, mask=Mask(window=window))
    got = kernel.attend_span(q, codes, span, None, exponents)[:-1]
    assert torch.equal(got, kernel.attend_span(q, kv, span)[:-1])
    assert got.isfinite().all()


def test_a_head_that_is_no_number_spoils_its_sequence_alone() -> None:
    table = tables(1)
    codes, exponents = poisoned(table, [length + 1 for length in LENGTHS], 1, 16)
    exponents[0, table[1, 2], 1] = 127  # as a key whose numbers are none
    span = plan_span(table, torch.tensor(LENGTHS, device=DEVICE), 1, BLOCK_SIZE)
    out = kernel.attend_span(randn(len(LENGTHS), 1, 2, 16), codes, span, None, exponents)
    assert [bool(row.isfinite().all()) for row in out[:-1]] == [True, False]
