"""Keys and values in eight bits: codes and exponents are those of the definition, worked out head by head."""

from fractions import Fraction
from math import isfinite, ldexp

import pytest
import torch
from torch import Tensor

from services.common.kernels.kv_codes.reference import coded, powers, powers_are_exact, widened
from services.common.kernels.span_attention import plan_span
from services.common.kernels.span_attention.reference import attend_span

TYPES = (torch.float64, torch.float32, torch.bfloat16)


def by_hand(head: list[float]) -> tuple[list[int], int]:
    """The least exponent from -126 on by which no code is beyond 127; codes are the nearest, of halves the even."""
    if not all(map(isfinite, head)):
        return [127] * len(head), 127
    top = max(abs(Fraction(x)) for x in head)
    exponent = -126
    while top > 127 * Fraction(2) ** exponent:
        exponent += 1
    if exponent > 121:
        return [127] * len(head), 127
    return [round(Fraction(x) / Fraction(2) ** exponent) for x in head], exponent


def heads(dtype: torch.dtype) -> Tensor:
    """Heads [T, 3, 8] of many sizes, with edges of exponents, halves, and what is no number."""
    generator = torch.Generator().manual_seed(11)
    drawn = torch.randn(60, 3, 8, generator=generator, dtype=torch.float64)
    drawn *= torch.exp2(torch.randint(-40, 40, (60, 3, 1), generator=generator).double())
    edges = [0.0, 127.0, 127.5, 128.0, 1.984375, 1.9921875, 2.0, 2.0**-126, 2.0**-133, 2.0**-149]
    edges += [2.0**120, 2.0**127, 1.99 * 2**127, float("inf"), float("nan")]
    hard = torch.zeros(len(edges), 3, 8, dtype=torch.float64)
    hard[:, 0, 2] = torch.tensor(edges, dtype=torch.float64)
    hard[:, 1] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5], dtype=torch.float64)
    hard[:, 2, 1] = -hard[:, 0, 2]
    return torch.cat((drawn, hard)).to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_codes_and_exponents_are_those_of_the_definition(dtype: torch.dtype) -> None:
    x_THD = heads(dtype)
    codes_THD, exponents_TH = coded(x_THD)
    assert (codes_THD.dtype, exponents_TH.dtype) == (torch.int8, torch.int8)
    for head, codes, exponent in zip(x_THD.double().flatten(0, 1).tolist(), codes_THD.flatten(0, 1).tolist(),
                                     exponents_TH.flatten().tolist(), strict=True):  # fmt: skip
        assert (codes, exponent) == by_hand(head)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_holds_what_codes_mean(dtype: torch.dtype) -> None:
    codes = torch.arange(-127, 128, dtype=torch.int8).repeat(248, 1)
    exponents = torch.arange(-126, 122, dtype=torch.int8)
    wide = widened(codes, exponents, dtype)
    assert wide.dtype == dtype
    assert wide.double().tolist() == [[ldexp(code, k) for code in range(-127, 128)] for k in range(-126, 122)]


def test_coding_again_changes_nothing_and_errs_by_half_a_step_at_most() -> None:
    x_THD = heads(torch.float32)[:60]
    codes_THD, exponents_TH = coded(x_THD)
    back_THD = widened(codes_THD, exponents_TH, torch.float32)
    assert torch.equal(widened(*coded(back_THD), torch.float32), back_THD)
    step_TH = powers(exponents_TH, torch.float32)
    assert bool(((back_THD - x_THD).abs() <= step_TH[..., None] / 2).all())
    assert bool((2 * step_TH[..., None] * 63.5 < 2 * x_THD.abs().amax(-1, keepdim=True)).all()), "no bit is left over"


def test_a_head_is_coded_by_itself() -> None:
    x_THD = heads(torch.float32)
    whole = coded(x_THD)
    for row in range(0, len(x_THD), 7):
        for part, own in zip(coded(x_THD[row : row + 1, 1:2]), whole, strict=True):
            assert torch.equal(part[0, 0], own[row, 1])


def test_powers_of_two_are_exact() -> None:
    assert powers_are_exact()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_is_that_of_what_codes_mean(dtype: torch.dtype) -> None:
    """Sums are float64, so that in float32 a row has the same bits beside any others."""
    generator = torch.Generator().manual_seed(2)
    codes = torch.randint(-127, 128, (2, 9, 4, 2, 16), generator=generator, dtype=torch.int8)
    exponents = torch.randint(-9, -5, codes.shape[:-1], generator=generator, dtype=torch.int8)
    q = torch.randn(2, 5, 4, 16, generator=generator).to(dtype)
    table, lengths = torch.tensor([[3, 5, 1, 7], [2, 8, 4, 0]], dtype=torch.int32), torch.tensor([9, 3])
    span = plan_span(table, lengths, 5, 4)
    got = attend_span(q, codes, span, exponents)
    wide = attend_span(q.double(), widened(codes, exponents, torch.float64), span)
    assert torch.equal(got, wide.to(dtype))
    for row in range(5):
        alone = plan_span(table[:1], lengths[:1] + row, 1, 4)
        assert torch.allclose(attend_span(q[:1, row : row + 1], codes, alone, exponents), got[:1, row : row + 1])
        if dtype == torch.float32:
            assert torch.equal(attend_span(q[:1, row : row + 1], codes, alone, exponents), got[:1, row : row + 1])
