"""What rounds of a benchmark's target took, from the file that it has written."""

from pathlib import Path

from services.target.engine.recorder import RoundEntry
from tests.bench.gpu.timeline import NotedRounds, read, table


def entry(number: int, ended: float, requests: int, width: int = 1, prefilled: int = 0) -> RoundEntry:
    return RoundEntry(number, width, requests, requests * width, 0, 0, prefilled, 0, 0, 0, ended=ended)


def test_rounds_are_kept_told_and_written(tmp_path: Path) -> None:
    file = tmp_path / "rounds"
    noted = NotedRounds(file)
    rounds = [
        entry(1, 10.0, 0, prefilled=512),
        entry(2, 10.050, 0, prefilled=512),
        entry(3, 10.055, 8, 4),
        entry(4, 10.061, 8, 4),
        entry(5, 10.068, 8, 4),
        entry(6, 12.0, 0, prefilled=512),
        entry(7, 12.04, 8, prefilled=512),
    ]
    for one in rounds:
        noted.add(one)
    assert noted.entries() == rounds
    assert [one["number"] for one in read(file)] == list(range(1, 8))
    assert table(read(file)).splitlines()[2:] == [
        "| 0 | 1 | 512 | 1 | 50.0 | 0 |",
        "| 8 | 1 | 512 | 1 | 40.0 | 8 |",
        "| 8 | 4 | 0 | 3 | 6.0 | 32 |",
    ], "the first round of each load has no commit before it"
