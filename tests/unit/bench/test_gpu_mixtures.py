"""The script that serves mixtures of experts: its table and its status."""

from __future__ import annotations

import pytest

from tests.bench.gpu import mixtures
from tests.bench.gpu.mixtures import Line, table

LINE = Line("30b-a3b", "ngram", 4, 16, 1, 20, 2, 61.8, 213.3, 9.1, 9.0)


def test_the_table_tells_what_differs_and_what_was_captured() -> None:
    head, row = table([LINE]).splitlines()
    told = dict(zip(head.replace(" tok/s", "").replace(" GB", "").split(), row.split(), strict=True))
    assert (told["differ"], told["captured"], told["streams"]) == ("1", "2", "4")


@pytest.mark.parametrize(("differ", "captured", "status"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_the_status_follows_from_both(differ: int, captured: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("30b-a3b", "ngram", 4, 16, differ, 20, captured, 1.0, 1.0, 1.0, 1.0)
    monkeypatch.setattr(mixtures, "served", lambda *_: iter([line]))
    monkeypatch.setattr("sys.argv", ["mixtures", "--tiny"])
    assert mixtures.main() == status
