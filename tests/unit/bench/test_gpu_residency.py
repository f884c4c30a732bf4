"""The script of experts in host memory: what a share of them takes, and its status."""

from __future__ import annotations

import pytest

from tests.bench.gpu import residency
from tests.bench.gpu.residency import Line, budget, load_of, table

LINE = Line(60, 1, 4, 0, 2.6, 2.0, 90.0, 60.0, 3, 0)


def test_a_share_is_a_budget_of_whole_experts() -> None:
    load = load_of("30b-a3b", 0, tiny=False)
    each = 3 * 2048 * 768 * 2 * 6
    assert [budget(load, share) for share in (100, 60, 20)] == [0, 77 * each, 26 * each]
    assert budget(load_of("30b-a3b", 0, tiny=False, weights="fp8"), 60) == 77 * each // 2


def test_the_table_tells_the_ratio() -> None:
    head, row = table([LINE]).splitlines()
    assert "ratio" in head
    assert row.split()[:8] == ["60", "1", "0", "4", "2.600", "385", "2.000", "1.30"]


@pytest.mark.parametrize(("differ", "recaptures", "status"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_the_status_follows_from_texts_and_captures(
    differ: int, recaptures: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(60, 1, 4, differ, 2.6, 2.0, 90.0, 60.0, 3, recaptures)
    monkeypatch.setattr(residency, "lines_of", lambda *_: iter([line]))
    monkeypatch.setattr("sys.argv", ["residency", "--tiny"])
    assert residency.main() == status
