"""Processes that are watched are given back exactly once; families are ended whole."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from services.common.serving.process import Watched, end_session

ROOT = Path(__file__).resolve().parents[4]


def test_closing_from_many_threads_closes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(os.getpid())
    closed: list[int] = []
    close = os.close

    def counting(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr("services.common.serving.process.os.close", counting)
    together = threading.Barrier(8)

    def give_back() -> None:
        together.wait(30)
        watched.close()

    threads = [threading.Thread(target=give_back) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(closed) == 1
    watched.kill()


FAMILY = """
import os, subprocess, sys, time
from services.common.serving.process import end_descendants
code = "import os, sys, time; os.setpgrp(); print(os.getpid(), flush=True); time.sleep(120)"
commands = [sys.executable, "-c", code], ["sh", "-c", "sleep 120 & echo $!; wait"]
# Each by a pipe of its own: what two write to one may meet in a line.
children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
print(*[child.stdout.readline().strip() for child in children], flush=True)
if "leave" in sys.argv:
    sys.stdin.readline()
    end_descendants()
    print("left", flush=True)
time.sleep(120)
"""


def family(*argv: str) -> tuple["subprocess.Popen[str]", list[Watched]]:
    """A process with a child in a group of its own and a grandchild."""
    command = [sys.executable, "-c", FAMILY, *argv]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    assert process.stdout is not None
    return process, [Watched(int(pid)) for pid in process.stdout.readline().split()]


def test_a_session_ends_with_all_its_groups() -> None:
    process, others = family()
    end_session(process.pid)
    assert process.wait(30) == -signal.SIGKILL
    assert all(other.wait(0.0) for other in others), "none lives when it returns"
    for other in others:
        other.close()
    process.communicate()


def test_a_process_ends_its_descendants_and_lives_on() -> None:
    process, others = family("leave")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "left\n"
    assert all(other.wait(30.0) for other in others)
    assert process.poll() is None
    for other in others:
        other.close()
    process.kill()
    process.communicate()


HEADLESS = """
import ctypes, subprocess, threading
def work():
    child = subprocess.Popen(["sleep", "120"])
    print(child.pid, flush=True)
    child.wait()
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60, 0)  # exit of this thread alone
"""
ENDING = """
import subprocess, sys, time
from pathlib import Path
from services.common.serving.process import end_descendants
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
below = child.stdout.readline().strip()
while (stat := Path(f"/proc/{child.pid}/stat").read_text()).rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
print(below, flush=True)
sys.stdin.readline()
end_descendants()
print("left", flush=True)
sys.stdin.readline()
"""


def test_a_process_whose_first_thread_has_ended_hides_no_child() -> None:
    command = [sys.executable, "-c", ENDING, HEADLESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None and process.stdout is not None
        below = Watched(int(process.stdout.readline()))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "left\n"
        assert below.wait(0.0), "none lives when it returns"
        below.close()
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_process_is_seen_to_end() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watched = Watched(child.pid)
    assert watched.alive
    watched.kill()
    assert watched.wait(30.0)
    assert child.wait(30) < 0
    watched.close()
