"""Parts of a round from the stamps of two processes."""

import json
from pathlib import Path

from tests.bench.gpu.parts.stamps import Point, Stamp, Stamps, read
from tests.bench.gpu.parts.table import ORDER, PARTS, rounds_of, rows_of, table

EACH_US = (5000, 300, 20, 60, 5, 10, 700, 4, 20)


def stamps_of(rounds: int, shape: tuple[int, int] = (32, 8), begin: int = 0) -> list[Stamp]:
    """Whole rounds one behind the other."""
    found, now = [], begin
    for _ in range(rounds):
        for point, micros in zip(ORDER, EACH_US, strict=True):
            found.append((*shape, point, now))
            now += micros * 1000
    return found


def test_parts_of_a_round_are_what_lies_between_its_stamps() -> None:
    rows = rows_of(rounds_of(stamps_of(31)))
    assert [(row["sequences"], row["width"], row["rounds"]) for row in rows] == [(32, 8, 30)]
    assert rows[0]["round_us"] == sum(EACH_US)
    assert tuple(rows[0]["parts_us"].values()) == EACH_US
    assert rows[0]["unexplained"] == 0
    assert table(rows).splitlines()[2].startswith("| 32 x 8 | 30 | 6119")


def test_rounds_that_are_not_whole_are_left_out() -> None:
    """Of another shape, with a draft that came late, or without one."""
    whole = stamps_of(25)
    other = stamps_of(1, (16, 8), whole[-1][3] + 1000)
    broken = [stamp for stamp in stamps_of(25, begin=other[-1][3] + 1000) if stamp[2] != Point.DRAFTED]
    assert {shape: len(found) for shape, found in rounds_of([*whole, *other, *broken]).items()} == {(32, 8): 24}


def test_shapes_of_few_rounds_are_not_told_of() -> None:
    assert rows_of(rounds_of(stamps_of(15))) == []


def test_stamps_of_two_processes_are_read_in_the_order_of_their_time(tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text(json.dumps([[320_802, 5], [320_803, 9]]))
    (tmp_path / "drafter.json").write_text(json.dumps([[320_808, 7]]))
    points = [point for _, _, point, _ in read(tmp_path)]
    assert points == [Point.FORWARD, Point.DRAFTED, Point.HEAD]
    assert len(PARTS) == len(ORDER)


def test_outside_of_a_step_nothing_is_stamped() -> None:
    stamps = Stamps()
    stamps.at(Point.HEAD)
    assert stamps._taken() == []
