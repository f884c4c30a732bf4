"""What target and drafter write becomes JSON on the controller's stdout, line by line, and never holds them up."""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.cluster.output import PIPE_BYTES, Lines, Printed, pipe_of
from services.common.serving import unhurried
from services.common.serving.unhurried import KEPT_BYTES

# What an actor does, in a process of its own, for it redirects its whole output.
WRITER = """
import logging, os, sys
from pathlib import Path
from deploy.cluster import output
print("before", file=sys.stderr)
output.speak(Path(sys.argv[1]), "target", "info", "pair-3")
exec(sys.argv[2])
"""
WAIT_S = 30.0
LINE = "x" * 900


def written(folder: Path, program: str) -> str:
    """Runs a program in a process that speaks; returns what it wrote before that and elsewhere."""
    command = [sys.executable, "-c", WRITER, str(folder), program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    return done.stdout + done.stderr


async def given(folder: Path, *programs: str) -> list[dict[str, Any]]:
    """The lines that come out when the programs run one after another."""
    lines: list[str] = []
    heard = Lines(folder, "target", "pair-3", lines.append)
    for program in programs:
        assert await asyncio.to_thread(written, folder, program) == "before\n"
    heard.close()
    assert not pipe_of(folder, "target").exists()
    return [json.loads(line) for line in lines]


async def test_a_line_of_the_log_names_its_pair_and_keeps_its_fields(tmp_path: Path) -> None:
    program = "logging.getLogger('x').info('planned', extra={'blocks': 7, 'terms': {'kv': 1}})"
    (entry,) = await given(tmp_path, program)
    assert entry.pop("time")
    assert entry == {
        "level": "info",
        "service": "target",
        "pair": "pair-3",
        "logger": "x",
        "message": "planned",
        "blocks": 7,
        "terms": {"kv": 1},
    }


async def test_what_libraries_and_children_print_is_json_too(tmp_path: Path) -> None:
    program = "print('out'); os.system('echo child >&2'); os.write(2, b'[1]'); os._exit(0)"
    entries = await given(tmp_path, program)
    assert [entry["message"] for entry in entries] == ["out", "child", "[1]"]
    assert {(entry["service"], entry["pair"], entry["level"]) for entry in entries} == {("target", "pair-3", "info")}


async def test_the_last_words_of_a_process_that_is_killed_come_out(tmp_path: Path) -> None:
    words = "logging.critical('lost'); os.kill(os.getpid(), 9)"
    caught = f"import subprocess; pid = os.fork()\nif not pid: {words}\nos.waitpid(pid, 0); logging.info('next')"
    assert [entry["message"] for entry in await given(tmp_path, caught)] == ["lost", "next"]


async def test_rays_own_marks_are_left_out(tmp_path: Path) -> None:
    assert await given(tmp_path, "print(':actor_name:TargetHost'); print(); print(':job_id:01')") == []


async def test_a_writer_does_not_wait_for_a_reader_that_hangs(tmp_path: Path) -> None:
    lines: list[str] = []
    heard = Lines(tmp_path, "target", "pair-3", lines.append)
    flood = f"[logging.info('%s', 'x' * 1000) for _ in range({4 * PIPE_BYTES // 1000})]"
    written(tmp_path, flood)  # on this thread, so that nobody reads
    heard.close()
    assert 0 < sum(map(len, lines)) <= 2 * PIPE_BYTES
    assert all(json.loads(line) for line in lines)


async def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    lines: list[str] = []
    heard = Lines(tmp_path, "target", "pair-3", lines.append)
    pipe = os.open(pipe_of(tmp_path, "target"), os.O_WRONLY)
    block = b"x" * (PIPE_BYTES // 2)
    for _ in range(3):
        os.write(pipe, block)
        await asyncio.sleep(0.01)
    os.close(pipe)
    heard.close()
    assert "".join(json.loads(line)["message"] for line in lines) == (3 * block).decode()


def test_without_a_controller_here_the_lines_stay_where_they_were(tmp_path: Path) -> None:
    entry = json.loads(written(tmp_path, "logging.warning('elsewhere')").splitlines()[0])
    assert (entry["message"], entry["pair"]) == ("elsewhere", "pair-3")


def test_what_ray_prints_to_the_controllers_stderr_is_one_line_of_its_log() -> None:
    stderr = io.StringIO()
    printed = Printed(stderr, "cluster")
    print("raylet is terminated\n    because", file=printed)
    print('{"message": "mine"}', file=printed)
    first, second = (json.loads(line) for line in stderr.getvalue().splitlines())
    assert (first["service"], first["message"]) == ("cluster", "raylet is terminated\n    because")
    assert second == {"message": "mine"}


def test_pieces_of_a_line_are_one_record() -> None:
    """As Python's own handler writes a traceback: each caret by itself."""
    stderr = io.StringIO()
    printed = Printed(stderr, "cluster")
    for piece in ("    ", "^", "^", "^", "\n", "last"):
        printed.write(piece)
    printed.close()
    assert [json.loads(line)["message"] for line in stderr.getvalue().splitlines()] == ["^^^", "last"]


def read_by(reading: int, found: list[bytes], after_s: float) -> threading.Timer:
    """Reads to the end of a pipe, from a moment on."""
    reader = threading.Timer(after_s, lambda: found.extend(iter(lambda: os.read(reading, 1 << 16), b"")))
    reader.daemon = True
    reader.start()
    return reader


def test_the_controller_waits_for_no_reader_and_its_last_lines_come_without_another() -> None:
    """Its stdout and stderr are such streams: behind them lies what a container's runtime reads, or does not."""
    reading, writing = os.pipe()
    found, lines = list[bytes](), 2 * KEPT_BYTES // len(LINE)
    with os.fdopen(writing, "w") as stream:
        printed = Printed(stream, "cluster")
        writer = threading.Thread(
            target=lambda: [printed.write(f"{number} {LINE}\n") for number in range(lines)], daemon=True
        )
        writer.start()
        writer.join(WAIT_S)
        assert not writer.is_alive(), "a line waits for the reader"
        reader, end = read_by(reading, found, 0.0), time.monotonic() + WAIT_S
        while sum(map(len, found)) < KEPT_BYTES:
            assert time.monotonic() < end, "what is kept comes with another line alone"
            time.sleep(0.01)
        while b"lines were lost" not in b"".join(found):
            assert time.monotonic() < end, "nobody tells of what was lost"
            printed.write("another\n")
            time.sleep(0.01)
        printed.close()
    reader.join(WAIT_S)
    os.close(reading)
    said = [json.loads(line)["message"] for line in b"".join(found).splitlines()]
    lost = [int(one.split()[0]) for one in said if "lines were lost" in one]
    assert sum(lost) + len([one for one in said if one.endswith(LINE)]) == lines


def test_a_controller_that_ends_gives_its_reader_a_moment_and_tells_what_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    found, lines = list[bytes](), 2 * KEPT_BYTES // len(LINE)
    monkeypatch.setattr(unhurried, "LAST_S", WAIT_S)  # however late its reader begins here
    with os.fdopen(writing, "w") as stream:
        printed = Printed(stream, "cluster")
        for number in range(lines):
            printed.write(f"{number} {LINE}\n")
        reader = read_by(reading, found, 0.1)
        printed.close()
    reader.join(WAIT_S)
    os.close(reading)
    *kept, last = (json.loads(line)["message"] for line in b"".join(found).splitlines())
    assert kept == [f"{number} {LINE}" for number in range(len(kept))], "the first ones, whole"
    assert last == f"{lines - len(kept)} lines were lost: nobody read them"
