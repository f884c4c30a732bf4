"""The scripts that show exactness see what they look for: each kind of company that may change a row is planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Span, attend_span
from tests.bench.gpu.exact import attention
from tests.bench.gpu.exact.kernels import TINY_SIZES, kernel_rows
from tests.bench.gpu.exact.report import conclude, exact_row
from tests.bench.gpu.exact.row_kernels import Numbers
from tests.bench.gpu.exact.rows_alone import Subject, Tally, compare
from tests.bench.gpu.shapes import TINY

COUNTS = (1, 2, 16, 33, 40)


def alone(x_TD: Tensor) -> Tensor:
    """Columns added one after the other."""
    return reduce(torch.add, x_TD.unbind(1))


def by_count(x_TD: Tensor) -> Tensor:
    """Another order of the sum from 33 rows on."""
    return alone(x_TD.flip(1) if len(x_TD) >= 33 else x_TD)


def by_neighbours(x_TD: Tensor) -> Tensor:
    return alone(x_TD.nan_to_num()) + 1e-6 * x_TD.nan_to_num().amax()


def with_leak(x_TD: Tensor) -> Tensor:
    """A neighbour counts by nothing, but its NaN comes through."""
    return alone(x_TD) + 0 * x_TD.sum()


@pytest.mark.parametrize(
    ("computed", "first"),
    [(by_count, "first 1"), (by_neighbours, "first 1"), (with_leak, "first 2, NaN beside"), (alone, "")],
)
def test_rows_that_depend_on_their_company_are_counted(computed: Callable[[Tensor], Tensor], first: str) -> None:
    x_TD = torch.randn(40, 64, generator=torch.Generator().manual_seed(2))
    (tally,) = compare(Subject("sum", (x_TD,), lambda given: {"out": computed(given[0])}), COUNTS, 1)
    assert (tally.differ > 0, tally.first) == (first != "", first)
    assert tally.compared > sum(COUNTS)


def test_the_sign_of_a_zero_counts() -> None:
    tally = Tally("zeros")
    tally.add("case", torch.tensor([[0.0], [1.0]]), torch.tensor([[-0.0], [1.0]]))
    assert (tally.compared, tally.differ) == (2, 1)


def test_a_fault_in_attention_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a width above one lose a bit; so do chunks."""

    def rounded(q: Tensor, kv: Tensor, span: Span) -> Tensor:
        out = attend_span(q, kv, span)
        return out if span.width == 1 else out.bfloat16().to(out.dtype)

    monkeypatch.setattr(attention, "attend_span", rounded)
    spans, _, chunks = attention.attention_tallies(TINY, Numbers(torch.float64, "cpu", 1), TINY_SIZES)
    assert spans.differ > spans.compared // 2
    assert chunks.differ == chunks.compared > 0


def test_what_a_cpu_computes_for_rows_alone_is_exact() -> None:
    """Products and attention on a CPU are not: their libraries choose the order of a sum by the number of rows."""
    rows = {row["exact"]["what"]: row["exact"] for row in kernel_rows("cpu", "float32", "tiny", only="")}
    assert len(rows) == 26
    assert all(one["streams"] > 0 for one in rows.values())
    exact = ("rms_norm", "swiglu", "embedding", "store_context", "argmax_token", "accept: penalties", "accept: greedy")
    assert {name: rows[name]["differ"] for name in exact} == dict.fromkeys(exact, 0)


@pytest.mark.parametrize(("differ", "streams", "status"), [(0, 5, 0), (1, 5, 1), (0, 0, 1)])
def test_a_difference_or_nothing_compared_is_a_failure(differ: int, streams: int, status: int, tmp_path: Path) -> None:
    assert conclude("kernels", "tiny", [exact_row("rows", streams, differ, cases=2)], str(tmp_path)) == status
    (saved,) = tmp_path.iterdir()
    document = json.loads(saved.read_text())
    assert document["rows"] == [{"exact": {"what": "rows", "streams": streams, "differ": differ}, "cases": 2}]
    assert {"commit", "versions", "device", "command"} <= document.keys()
