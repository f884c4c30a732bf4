"""Attention to codes in CUDA C++ has the bits of attention to the numbers that they mean; no other memory counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from services.common.kernels.kv_codes.reference import widened
from services.common.kernels.span_attention import Span, hopper, kernel, plan_span
from services.common.kernels.span_attention.hopper import TileCut, tiles_of
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
GROUP, SIZE, NO_NUMBER = 4, 128, 127
CUTS = [TileCut(programs) for programs in (1, 2, 3, 5, 16)]
EDGES = [[0, 1, 62, 63, 64, 65], [959, 1007, 1008, 1016, 1023, 1024], [2040, 4090, 4096], [7160, 8190, 9000]]
"""Lengths next to ends of tiles and of splits; in some tiles rows have splits of two sizes."""


class Coded:
    """Random codes and queries. Positions that no row sees are NaN, and so are heads of blocks that nobody has."""

    def __init__(self, lengths: list[int], width: int, block: int = 16, heads: int = 4) -> None:
        columns = -(-(max(lengths) + width) // block)
        order = torch.randperm(len(lengths) * columns, generator=torch.Generator().manual_seed(1)) + 1
        shape, generator = (2, 1 + len(order), block, heads, SIZE), torch.Generator().manual_seed(2)
        self.codes = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
        self.exponents = torch.full(shape[:-1], NO_NUMBER, dtype=torch.int8)
        table = order.view(len(lengths), columns).to(torch.int32)
        for row, length in enumerate(lengths):
            seen = torch.arange(length + width)
            drawn = torch.randint(-11, -5, (2, len(seen), heads), generator=generator, dtype=torch.int8)
            self.exponents[:, table[row].long()[seen // block], seen % block] = drawn
            table[row, -(-len(seen) // block) :] = 0
        self.codes, self.exponents = self.codes.to(DEVICE), self.exponents.to(DEVICE)
        self.q = 2 * randn(len(lengths), width, GROUP * heads, SIZE, seed=3, dtype=torch.bfloat16)
        self.span: Span = plan_span(table.to(DEVICE), torch.tensor(lengths, device=DEVICE), width, block)

    def expected(self, monkeypatch: pytest.MonkeyPatch) -> Tensor:
        """By Triton, of numbers."""
        with monkeypatch.context() as patched:
            patched.setattr(kernel, "tiles_of", lambda *_: None)
            return kernel.attend_span(self.q, self.numbers(), self.span)

    def numbers(self) -> Tensor:
        return torch.stack([widened(*own, torch.bfloat16) for own in zip(self.codes, self.exponents, strict=True)])

    def __call__(self, monkeypatch: pytest.MonkeyPatch, cut: TileCut) -> Tensor:
        with monkeypatch.context() as patched:
            patched.setattr(kernel, "tiles_of", lambda *_: cut)
            return kernel.attend_span(self.q, self.codes, self.span, None, self.exponents)


@pytest.mark.parametrize("lengths", EDGES)
@pytest.mark.parametrize("width", [1, 3, 8, 9, 16, 64])
def test_every_cut_has_the_bits_of_numbers(width: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    coded = Coded(lengths, width)
    expected = coded.expected(monkeypatch)
    assert not expected.isnan().any()
    assert torch.equal(kernel.attend_span(coded.q, coded.numbers(), coded.span), expected)
    for cut in CUTS:
        assert torch.equal(coded(monkeypatch, cut), expected), cut


@pytest.mark.parametrize("width", [40, 512])
def test_prompts_have_the_bits_of_numbers(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    coded = Coded([0, 2048, 500], width)
    expected = coded.expected(monkeypatch)
    for cut in (TileCut(1), TileCut(1, 2)):
        assert torch.equal(coded(monkeypatch, cut), expected), cut


@pytest.mark.parametrize("block", [8, 16, 32, 64, 128])
def test_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for heads in (2, 8):
        coded = Coded([300, 77, 128], 16, block, heads)
        expected = coded.expected(monkeypatch)
        for cut in (TileCut(1), TileCut(2)):
            assert torch.equal(coded(monkeypatch, cut), expected), (heads, cut)


def test_many_sequences_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CTA takes one item after another; from the longest on, as rounds sort them, and as they come."""
    for lengths in ([37 * row % 700 for row in range(150)], [40]):
        coded = Coded(lengths, 8)
        expected = coded.expected(monkeypatch)
        assert torch.equal(coded(monkeypatch, TileCut(1)), expected)
        ranks = [[row, lengths[row]] for row in sorted(range(len(lengths)), key=lambda row: -lengths[row])]
        coded.span = replace(coded.span, ranks_B2=torch.tensor(ranks, dtype=torch.int32, device=DEVICE))
        assert torch.equal(coded(monkeypatch, TileCut(1)), expected)


def test_codes_and_exponents_of_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers as small and as large as they come, and heads without numbers, which spoil their own sequence alone."""
    coded = Coded([900, 700, 500], 4)
    coded.codes[:, :, :, :, 0], coded.codes[:, :, :, :, 1] = -127, 0
    table = coded.span.block_table_BN
    coded.exponents[1, table[0, :50].long()] = -126
    coded.exponents[0, table[0, :50].long()] = -126
    coded.exponents[1, table[1, 3].long(), 5] = 90
    coded.exponents[:, table[1, 10:30].long()] = torch.tensor([-7, -6, -5, 2], dtype=torch.int8, device=DEVICE)
    coded.exponents[0, table[1, 40].long(), 3] = 40
    expected = coded.expected(monkeypatch)
    assert torch.equal(coded(monkeypatch, TileCut(1)), expected) and expected.isfinite().all()
    coded.exponents[0, table[2, 1].long(), 7, 1] = NO_NUMBER
    found = coded(monkeypatch, TileCut(2))
    assert torch.equal(found[:2], expected[:2]) and found[2].isnan().any()


def test_a_key_without_numbers_spoils_no_row_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    coded = Coded([700, 64], 8)
    coded.exponents[0, coded.span.block_table_BN[0, 704 // 16].long(), 704 % 16] = NO_NUMBER
    expected = coded.expected(monkeypatch)
    for cut in (TileCut(1), TileCut(3)):
        found = coded(monkeypatch, cut)
        assert torch.equal(found[0, :4], expected[0, :4]) and torch.equal(found[1], expected[1])
        assert found[0, :4].isfinite().all() and found[0, 4:].isnan().all()


def test_its_own_cut_serves_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them falls back to Triton unseen; what no copy engine fetches does."""
    for lengths, width in (([9000] * 8, 16), ([9000] * 8, 1), ([9000], 16), ([300], 1024)):
        coded = Coded(lengths, width, heads=8)
        assert tiles_of(coded.q, coded.codes, coded.span, None, coded.exponents) is not None, (len(lengths), width)
        found = kernel.attend_span(coded.q, coded.codes, coded.span, None, coded.exponents)
        assert torch.equal(found, coded.expected(monkeypatch)), (len(lengths), width)
    monkeypatch.setattr(hopper, "cut_codes", lambda *_: TileCut(1))
    for block, heads in ((8, 1), (4, 8)):
        coded = Coded([300], 16, block, heads)
        assert tiles_of(coded.q, coded.codes, coded.span, None, coded.exponents) is None
