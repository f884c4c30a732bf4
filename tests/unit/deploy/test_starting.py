"""What people see while a pair starts: stages from the workers' logs, on a terminal and in a file."""

import errno
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import pytest

from deploy.cluster.output import as_json
from deploy.starting import Screen, Stage, Starting, Unfailing
from services.common.serving.logs import JsonFormatter
from services.common.serving.progress import GAP_S, WEIGHTS, Progress, ended


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a worker logs, as the controller writes it."""
    path, formatter = tmp_path / "cluster.out", JsonFormatter("target", "pair-0")
    path.write_text('{"grpc": "127.0.0.1:1"}\nno json\n[1]\n')

    class ToFile(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with path.open("a") as file:
                file.write(as_json(formatter.format(record), "target", "pair-0") + "\n")

    logger = logging.getLogger("services.common.serving.progress")
    monkeypatch.setattr(logger, "handlers", [ToFile()])
    monkeypatch.setattr(logger, "disabled", False)
    level = logger.level
    logger.setLevel(logging.INFO)  # which, unlike a new `level`, forgets what other tests asked the logger
    yield path
    logger.setLevel(level)


def test_a_worker_tells_its_first_its_last_and_few_between(written: Path) -> None:
    clock = Clock()
    progress = Progress("steps", 100, clock)
    for _ in range(100):
        progress.add()
        clock.now += GAP_S / 10
    told = [json.loads(line)["done"] for line in written.read_text().splitlines()[3:]]
    assert told[0] == 1 and told[-1] == 100 and len(told) in (10, 11, 12)
    progress.add(7)
    assert len(written.read_text().splitlines()) == 3 + len(told), "the whole is told once"


def test_the_stage_of_each_worker_is_followed(written: Path) -> None:
    starting = Starting(written)
    assert starting.stages() == ()
    weights = Progress(WEIGHTS, 8_040_000_000, clock := Clock())
    weights.add(3_100_000_000)
    assert [stage.text for stage in starting.stages()] == ["pair-0 target reads weights: 3.1 of 8.0 GB"]
    clock.now += 2 * GAP_S
    weights.add(1 << 40)
    assert starting.stages()[0].done == 8_040_000_000
    with written.open("a") as file:
        half = json.dumps({"service": "drafter", "pair": "pair-0", "stage": "steps", "done": 1, "of": 9})
        file.write(half[:20])
        file.flush()
        assert [stage.worker for stage in starting.stages()] == ["pair-0 target"], "a line is read when it is whole"
        file.write(half[20:] + "\n")
    assert starting.stages() == (Stage("pair-0 drafter", "steps", 1, 9),), "finished ones are told no more"
    ended(WEIGHTS)
    assert {stage.worker for stage in starting.stages()} == {"pair-0 drafter"}


def test_a_terminal_has_one_line_renewed() -> None:
    screen = Screen(terminal := Terminal())
    screen.renew(["a"], "a: 1 of 2; 3 s")
    screen.renew(["a"], "a: 1 of 2; 3 s")
    screen.renew(["a"], "a: 2 of 2; " + "x" * 500)
    assert terminal.getvalue().count("\r\x1b[K") == 2 and "\n" not in terminal.getvalue()
    assert len(terminal.getvalue()) < 300, "a line that wraps could not be renewed"
    screen.step("ready")
    assert terminal.getvalue().endswith("] ready\n") and terminal.getvalue().count("\r\x1b[K") == 3
    screen.clear()
    assert terminal.getvalue().endswith("] ready\n")


def test_a_file_has_a_line_for_each_stage_and_few_more() -> None:
    screen = Screen(stream := io.StringIO(), clock := Clock())
    for second in range(40):
        clock.now = second
        screen.renew(["other"] * (second % 2) + ["reads" if second < 20 else "captures"], f"at {second} s")
    assert [line.partition("] ")[2] for line in stream.getvalue().splitlines()] == [
        "at 0 s", "at 1 s", "at 16 s", "at 20 s", "at 35 s",
    ]  # fmt: skip
    assert "\x1b" not in stream.getvalue()


class Broken(io.StringIO):
    """Takes so many writes and flushes, and none after them."""

    def __init__(self, calls: int, number: int) -> None:
        super().__init__()
        self.left, self.number = calls, number

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))

    def write(self, text: str) -> int:
        self._count()
        return super().write(text)

    def flush(self) -> None:
        self._count()


def test_an_output_that_breaks_at_any_moment_is_told_once_and_stops_nothing() -> None:
    for calls in range(12):
        for number in (errno.ENOSPC, errno.EPIPE, errno.EIO):
            other = io.StringIO()
            broken = Broken(calls, number)
            screen = Screen(cast("TextIO", Unfailing(broken, other)))
            for line in ("one", "two", "three"):
                screen.step(line)
            left = broken.left
            assert other.getvalue().splitlines() == [
                f"note: the output is lost: {os.strerror(number)}; serving goes on"
            ] * (left < 0)


def test_an_output_and_its_errors_may_both_break() -> None:
    screen = Screen(cast("TextIO", Unfailing(Broken(0, errno.ENOSPC), Broken(0, errno.ENOSPC))))
    screen.step("one")
