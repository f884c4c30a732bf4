"""Every service, asked to leave while it still starts, ends with 0 and leaves nothing running."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED, REPOSITORY

COMMANDS = {
    "target": ["services.target", f"--model={EMBEDDED / 'target'}", f"--drafter-model={EMBEDDED / 'drafter'}",
               "--drafter-address=unix:{0}/d.sock"],
    "drafter": ["services.drafter", f"--model={EMBEDDED / 'drafter'}", "--proposer=dflash", "--grpc=unix:{0}/d.sock"],
    "gateway": ["services.gateway", f"--tokenizer={EMBEDDED / 'target'}", "--watch=127.0.0.1:1"],
    "cluster": ["deploy.cluster", f"--model={EMBEDDED / 'target'}", "--proposer=none", "--run-dir={0}/c"],
}  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    """One whose path leaves Ray's sockets room; pytest's own may be too long for them."""
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def start(service: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", *(word.format(folder) for word in COMMANDS[service])]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_handler(pid: int) -> None:
    """Until the process handles SIGTERM: before, Python itself still starts."""
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        status = Path(f"/proc/{pid}/status").read_text()
        (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.005)
    raise AssertionError("no handler")


def asked_to_leave(process: "subprocess.Popen[str]") -> str:
    """Ends the service as a supervisor would; gives what it wrote to stderr."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return errors


@pytest.mark.parametrize("service", COMMANDS)
def test_while_it_is_imported(service: str, folder: Path) -> None:
    process = start(service, folder)
    wait_for_handler(process.pid)
    assert asked_to_leave(process) == ""


@pytest.mark.parametrize("service", ["target", "drafter"])
def test_while_it_loads(service: str, folder: Path) -> None:
    process = start(service, folder)
    assert process.stdout is not None
    assert process.stdout.readline()
    assert "Traceback" not in asked_to_leave(process)


def test_while_ray_starts(folder: Path) -> None:
    process = start("cluster", folder)
    end = time.monotonic() + 60.0
    while not list(folder.glob("c/ray/session_2*/sockets/raylet")):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert "Traceback" not in asked_to_leave(process)
    assert not session(process.pid)


def session(leader: int) -> list[str]:
    """Command lines of what lives in a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(of) == leader and state not in "ZX":
            found.append(line)
    return found
