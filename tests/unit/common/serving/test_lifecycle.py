"""A service as a process: announced once, drained on SIGTERM, dead with its parent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.common.metrics.version import VERSION
from services.common.serving.process import Watched
from tests.support.pace import ALLOWED

ROOT = Path(__file__).resolve().parents[4]

APP = """
import asyncio, gc, sys
from services.common.serving import lifecycle, process
from tests.unit.common.serving.fleet import server

class App:
    def __init__(self):
        self.server, self.fatal, self.ready = server(), None, True
    async def start(self):
        assert not gc.isenabled()
        bound = await self.server.start()
        if "fatal" in sys.argv:
            self.fatal = asyncio.get_running_loop().create_future()
            self.fatal.set_exception(RuntimeError("the engine died"))
        return bound
    async def drain(self):
        assert gc.isenabled()
        await self.server.stop(0)
        print("drained", flush=True)

process.collect_later()
sys.exit(lifecycle.run("fleet", App()))
"""

STARTING = """
import asyncio, sys, time
from services.common.serving import lifecycle
from services.common.serving.process import leave, leave_when_asked
from tests.unit.common.serving.fleet import server

class App:
    def __init__(self):
        self.server, self.ready = server(), False
    async def load(self):
        print("loading", flush=True)
        await asyncio.to_thread(time.sleep, 120)
    async def start(self):
        if "in start" in sys.argv:
            await self.load()
        self.task = asyncio.create_task(self.load())
        return await self.server.start()
    async def drain(self):
        await self.server.stop(0)
        print("drained", flush=True)

leave_when_asked()
if "before" in sys.argv:
    print("loading", flush=True)
    time.sleep(120)
leave(lifecycle.run("fleet", App()))
"""

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "from services.common.serving.process import die_with_parent; die_with_parent(); print('ready', flush=True);"
    "import time; time.sleep(120)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(120)
"""


def start(code: str, *argv: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, *argv], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_0(number: signal.Signals) -> None:
    process = start(APP)
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line["service"] == "fleet"
    assert line["pid"] == process.pid
    assert all(int(line[name].rpartition(":")[2]) > 0 for name in ("grpc", "health", "metrics"))
    process.send_signal(number)
    rest, errors = process.communicate(timeout=60)
    assert (rest, process.returncode) == ("drained\n", 0)
    told = [json.loads(each) for each in errors.splitlines()]
    assert [each["message"] for each in told] == ["listening", "asked to end", "ended"]
    assert (told[0]["version"], told[0]["grpc"], told[1]["signal"]) == (VERSION, line["grpc"], number.name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("moment", "said"), [("before", ""), ("in start", "drained\n"), ("after start", "drained\n")])
def test_a_signal_ends_a_service_that_still_loads_with_0(moment: str, said: str, number: signal.Signals) -> None:
    begun, process = time.monotonic(), start(STARTING, moment)
    assert process.stdout is not None
    while process.stdout.readline() != "loading\n":
        assert process.poll() is None
    asked = time.monotonic()
    bound_s = 3.0 + ALLOWED * (asked - begun)  # what a start takes here now is what other work makes of it
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest.endswith(said)
    assert time.monotonic() - asked < bound_s


def test_a_fatal_error_drains_and_ends_with_1() -> None:
    process = start(APP, "fatal")
    output, _ = process.communicate(timeout=60)
    assert output.endswith("drained\n")
    assert process.returncode == 1


def test_a_child_dies_with_its_parent() -> None:
    parent = start(PARENT)
    assert parent.stdout is not None
    child = Watched(int(parent.stdout.readline()))
    assert child.alive
    parent.kill()
    parent.communicate(timeout=60)
    assert child.wait(60)
    child.close()


def test_a_watched_process_is_killed_once_and_its_end_is_seen() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    watched = Watched(process.pid)
    assert watched.alive
    watched.kill()
    assert watched.wait(60)
    watched.kill()
    assert process.wait(60) == -signal.SIGKILL
    watched.close()
    watched.close()


def test_a_process_that_is_gone_cannot_be_watched() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    with pytest.raises(ProcessLookupError):
        Watched(process.pid)
    assert os.getpid() != process.pid
