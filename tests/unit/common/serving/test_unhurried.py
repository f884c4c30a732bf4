"""A log whose pipe nobody reads holds nothing up; one that is read slowly loses nothing; no line is cut."""

from __future__ import annotations

import json
import logging
import os
import select
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from services.common.serving import logs, unhurried
from services.common.serving.unhurried import KEPT_BYTES, Unhurried

WAIT_S = 60.0
TEXT = "x" * 900
logger = logging.getLogger("services.unhurried")


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Any]]:
    """The end that reads, and the stream of the one that writes; handlers are after the test as before."""
    root = logging.getLogger()
    handlers, level, root.handlers = root.handlers[:], root.level, []
    reading, writing = os.pipe()
    monkeypatch.setattr(unhurried, "LAST_S", WAIT_S)  # however slow the machine is, what is kept is read
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
    os.close(reading)
    root.handlers = handlers
    root.setLevel(level)


def written(lines: int) -> None:
    """Logs so many lines, half of them as those of calls are; fails where somebody waits for the reader."""

    def log() -> None:
        for number in range(0, lines, 2):
            logger.info("%d %s", number, TEXT)
            logs.tell(logger, f"{number + 1} {TEXT}", {})

    writer = Thread(target=log, daemon=True)
    writer.start()
    writer.join(WAIT_S)
    assert not writer.is_alive(), "a line waits for the reader"


def read_by(reading: int, found: list[bytes]) -> Thread:
    """Reads until the pipe's end."""

    def read() -> None:
        while data := os.read(reading, 4096):
            found.append(data)

    reader = Thread(target=read, daemon=True)
    reader.start()
    return reader


def lines_of(reading: int, stream: Any) -> list[dict[str, Any]]:
    """Every line that comes before all who write have ended."""
    found: list[bytes] = []
    reader = read_by(reading, found)
    (handler,) = logging.getLogger().handlers
    handler.close()
    stream.close()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    return [json.loads(line) for line in b"".join(found).splitlines()]


def configured(stream: Any) -> None:
    """Logs to there, but takes no record of a thread that another test left behind: lost ones are counted, too."""
    logs.configure("gateway", stream=stream)
    (handler,) = logging.getLogger().handlers
    handler.addFilter(logging.Filter(logger.name))


def test_nobody_waits_for_a_pipe_that_nobody_reads(pipe: tuple[int, Any]) -> None:
    reading, stream = pipe
    configured(stream)
    lines = 2 * KEPT_BYTES // len(TEXT)
    written(lines)
    *told, lost = lines_of(reading, stream)
    numbers = [int(line["message"].split()[0]) for line in told]
    assert numbers == list(range(len(numbers))) and 0 < len(numbers) < lines, "the first ones are kept, whole"
    assert lost["message"] == "lines were lost: nobody read them"
    assert len(numbers) + lost["lines"] == lines, "the end tells how many were lost"


def test_what_was_lost_is_told_once_there_is_room(pipe: tuple[int, Any]) -> None:
    reading, stream = pipe
    configured(stream)
    lines, found = 2 * KEPT_BYTES // len(TEXT), list[bytes]()
    written(lines)
    reader = read_by(reading, found)
    (handler,) = logging.getLogger().handlers
    taken: Any = getattr(handler, "stream")  # noqa: B009 - of no public class
    while taken.behind:
        handler.flush()
    handler.flush()  # what was kept may have gone without it
    logger.info("after")
    handler.close()
    stream.close()
    reader.join(WAIT_S)
    *kept, lost, after = (json.loads(line) for line in b"".join(found).splitlines())
    assert (lost["message"], after["message"]) == ("lines were lost: nobody read them", "after")
    assert len(kept) + lost["lines"] == lines


def test_a_slow_reader_misses_nothing(pipe: tuple[int, Any]) -> None:
    reading, stream = pipe
    configured(stream)
    lines = KEPT_BYTES // 2 // len(TEXT)
    written(lines)
    assert len(lines_of(reading, stream)) == lines


def test_other_writers_of_the_pipe_wait_as_before(pipe: tuple[int, Any]) -> None:
    _, stream = pipe
    logs.configure("gateway", stream=stream)
    assert os.get_blocking(stream.fileno())


def test_a_file_is_written_as_it_is(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert unhurried.unhurried(file) is file


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        pipe = unhurried.unhurried(stream)
        assert isinstance(pipe, Unhurried)
        assert pipe.write("a\n") == 2 and not pipe.behind
        pipe.end(str)


def test_several_threads_write_whole_lines_which_a_slow_reader_gets_without_another() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        pipe = unhurried.unhurried(stream)
        assert isinstance(pipe, Unhurried)
        lines = KEPT_BYTES // 8 // len(TEXT)

        def write(name: int) -> None:
            for number in range(lines):
                pipe.write(f"{name} {number} {TEXT}\n")

        writers = [Thread(target=write, args=(name,), daemon=True) for name in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(WAIT_S)
        found = b""
        while found.count(b"\n") < 4 * lines:
            assert select.select([reading], [], [], WAIT_S)[0], "what is kept comes with another line alone"
            found += os.read(reading, 4096)
        pipe.end(str)
    os.close(reading)
    wanted = {f"{name} {number} {TEXT}" for name in range(4) for number in range(lines)}
    assert sorted(found.decode().splitlines()) == sorted(wanted)


def test_where_no_thread_can_be_made_lines_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while an interpreter ends, or where a container has no processes left: nobody who logs hears of it."""

    def start(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    reading, writing = os.pipe()
    monkeypatch.setattr(unhurried, "LAST_S", WAIT_S)
    with os.fdopen(writing, "w") as stream:
        pipe = unhurried.unhurried(stream)
        assert isinstance(pipe, Unhurried)
        monkeypatch.setattr(Thread, "start", start)
        while not pipe.behind:
            pipe.write(TEXT + "\n")
        pipe.write("last\n")
        found = os.read(reading, KEPT_BYTES)
        pipe.end(str)
    os.set_blocking(reading, False)
    assert (found + os.read(reading, KEPT_BYTES)).endswith(b"last\n")
    os.close(reading)
