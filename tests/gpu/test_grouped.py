"""Products of rows and weights of e4m3 codes: near the reference, a row with its bits in any company and cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import Normed, reference
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.grouped import kernel
from services.common.kernels.linear.grouped.rows import rounded_rows
from services.common.kernels.linear.grouped.weight import GroupedWeight, rounded
from services.common.kernels.linear.grouped.weight import rounded_rows as rows_in_torch
from services.common.kernels.linear.persistent.grouped import grouped_cut
from tests.kernels.gpu.devices import randn

EPS = 1e-6
ROWS = (1, 2, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 1024)
SHAPES = ((1536, 512), (768, 1152), (2560, 640), (1536, 768), (512, 256), (2560, 3072))
"""Lines and depth: stages of four groups, two and one, of which there are few, and bands that scales end in."""


def weight_of(lines: int, depth: int) -> GroupedWeight:
    found = rounded(randn(lines, depth, seed=1, dtype=torch.bfloat16).mul_(depth**-0.5))
    assert found is not None
    return found


def poisoned(x_TD: Tensor, row: int) -> Tensor:
    """All other rows are no numbers."""
    other = torch.full_like(x_TD, torch.nan)
    other[row] = x_TD[row]
    return other


@pytest.mark.parametrize("rows", [7, 100])
def test_rows_are_rounded_as_in_torch(rows: int) -> None:
    x = randn(rows, 1280, dtype=torch.bfloat16)
    x[1], x[2, :128], x[3] = 0.0, 448.0, x[3] * 1e30
    for got, expected in zip(rounded_rows(x), rows_in_torch(x), strict=True):
        assert torch.equal(got.float(), expected.float())


@pytest.mark.parametrize(("lines", "depth"), SHAPES)
def test_a_product_is_near_the_reference(lines: int, depth: int) -> None:
    x, weight = randn(300, depth, dtype=torch.bfloat16), weight_of(lines, depth)
    expected = reference.linear(x.float(), weight)
    for rows in (1, 64, 100, 300):
        got = kernel.linear(x[:rows], weight).float()
        scale = float(expected.std())
        assert float((got - expected[:rows]).abs().max()) < 0.02 * scale + 2**-8 * float(expected.abs().max()), rows


@pytest.mark.parametrize(("lines", "depth"), SHAPES)
@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.GATED, Kind.ADDED])
def test_a_row_has_its_bits_in_any_company(lines: int, depth: int, kind: Kind) -> None:
    x, weight = randn(ROWS[-1], depth, dtype=torch.bfloat16), weight_of(lines, depth)
    stream, norm = randn(ROWS[-1], lines, seed=2, dtype=torch.bfloat16), randn(lines, seed=3, dtype=torch.bfloat16)
    squares = (randn(ROWS[-1], seed=4).abs() * depth * 2**24).long() + 1
    whole = product(x, weight, kind, stream, norm, squares)
    for rows in ROWS:
        row = rows - 1
        got = product(poisoned(x[:rows], row), weight, kind, stream[:rows], norm, squares[:rows])
        for one, other in zip(got, whole, strict=True):
            assert torch.equal(one[row], other[row]), (rows, grouped_cut(lines, depth, rows, kind))


def product(
    x: Tensor, weight: GroupedWeight, kind: Kind, stream: Tensor, norm: Tensor, squares: Tensor
) -> list[Tensor]:
    """All that a product leaves."""
    if kind == Kind.GATED:
        return [kernel.linear_gated(Normed(x, squares), weight, EPS)]
    if kind == Kind.PLAIN:
        return [kernel.linear(x, weight)]
    added = torch.full_like(squares, 3)
    normed, total = kernel.linear_added(x, weight, stream.contiguous(), norm, EPS, 0.5, added)
    return [total, normed.rows_TD, added]


def test_what_follows_a_product_is_what_would_follow_it_alone() -> None:
    lines, depth, rows = 1536, 512, 100
    x, weight = randn(rows, depth, dtype=torch.bfloat16), weight_of(lines, depth)
    stream, norm = randn(rows, lines, seed=2, dtype=torch.bfloat16), randn(lines, seed=3, dtype=torch.bfloat16)
    plain = kernel.linear(x, weight)
    total, normed, _ = product(
        x, weight, Kind.ADDED, stream, norm, torch.zeros(rows, dtype=torch.int64, device=x.device)
    )
    assert torch.equal(total, (plain.float() + stream.float()).bfloat16())
    assert torch.equal(normed, (total.float() * (norm.float() + 0.5)).bfloat16())
    gate, up = plain.float().chunk(2, 1)
    [gated] = product(x, weight, Kind.GATED, stream, norm, (torch.ones(rows, device=x.device) * depth * 2**24).long())
    torch.testing.assert_close(gated.float(), torch.nn.functional.silu(gate) * up, atol=2e-2, rtol=2e-2)
