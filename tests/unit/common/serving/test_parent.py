"""A service ends with the process that started it, also where that one was killed."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from services.common.serving.parent import PARENT
from services.common.serving.process import Watched

ROOT = Path(__file__).resolve().parents[4]
WAIT_S = 60.0

CHILD = """
import os, signal, subprocess, sys, time
from services.common.serving import parent

def asked(*_):
    print("asked", flush=True)
    sys.exit(0)

how = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "deaf" else asked)
parent.GRACE_S = 0.2
own = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True)
parent.end_with_parent()
print(os.getpid(), own.pid, flush=True)
time.sleep(600)
"""
PARENT_CODE = """
import os, subprocess, sys, time
environment = {**os.environ, sys.argv[2]: str(os.getpid())}
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[3]], env=environment, start_new_session=True)
time.sleep(600)
"""


def ends(pid: int) -> bool:
    """The process ends within a minute, or has ended."""
    try:
        return Watched(pid).wait(WAIT_S)
    except ProcessLookupError:
        return True


@pytest.mark.parametrize("how", ["polite", "deaf"])
def test_a_service_whose_parent_is_killed_ends_and_a_deaf_one_is_ended_with_its_own(how: str) -> None:
    command = [sys.executable, "-c", PARENT_CODE, CHILD, PARENT, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, own = map(int, parent.stdout.readline().split())
        parent.kill()
        assert ends(child)
        assert parent.stdout.read() == ("asked\n" if how == "polite" else "")
        if how == "deaf":
            assert ends(own)
        else:
            os.kill(own, 9)


def test_a_service_whose_parent_went_while_it_began_ends_at_once() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    code = "from services.common.serving.parent import end_with_parent; end_with_parent(); print('lives')"
    environment = {**os.environ, PARENT: str(gone.pid)}
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environment, timeout=WAIT_S) == b""


def test_a_service_that_nobody_started_lives_on_and_its_children_hear_of_no_parent() -> None:
    code = "import os; from services.common.serving.parent import *; end_with_parent(); print(os.environ.get(PARENT))"
    for value in ({}, {PARENT: str(os.getpid())}, {PARENT: "no number"}):
        told = subprocess.check_output(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **value}, timeout=WAIT_S
        )
        assert told == b"None\n", value


def test_the_end_of_a_thread_of_the_parent_ends_nothing() -> None:
    code = (
        "import os, subprocess, sys, threading, time\n"
        f"environment = {{**os.environ, {PARENT!r}: str(os.getpid())}}\n"
        "child = 'from services.common.serving.parent import *; end_with_parent(); print(1, flush=True); input()'\n"
        "def start(): global one; one = subprocess.Popen([sys.executable, '-c', child], env=environment,"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
        "one.stdout.readline(); time.sleep(0.3); one.communicate(b'\\n'); print(one.returncode)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        ready, _, _ = select.select([parent.stdout], [], [], WAIT_S)
        assert ready and parent.stdout.readline() == b"0\n"
