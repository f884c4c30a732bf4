"""Starts services as processes of their own, forked from one that has imported what they import.

Imports are most of what a start costs, above all that of torch, which gateways run without: theirs is another process
that forks. `python -m` itself is held by tests of starting, of faults with variables of their own, and of everything
under `deploy`.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, cast

from deploy.stack import REPOSITORY, ServiceProcess

PAIR = ("services.target.app", "services.drafter.app")
MODULES = {
    "services.target": PAIR,
    "tests.bench.gpu.pinned": PAIR,
    "tests.faults.any_rows_target": PAIR,
    "services.drafter": PAIR,
    "services.gateway": ("services.gateway.app",),
}
"""What is imported before a service is forked."""
UNREAD = ("PACELINE_", "PYTEST_", "BENCH_")
"""How variables begin that no library reads while it is imported."""
LISTENS = "listens"
THREADS = {"OMP_NUM_THREADS": "1"}
START_S = 240.0
"""Within which a process that lives has told its addresses: it computes for 2 s, and a dozen others may beside it."""


class Forked:
    """What tests use of `subprocess.Popen`."""

    def __init__(self, told: int) -> None:
        """Reads the id from the descriptor `told`, and later the exit code."""
        self._told, self._read, self.returncode = told, b"", cast("int | None", None)
        line = self._line(START_S)
        assert line, "the process that forks services has ended, or does not answer"
        self.pid = int(line)

    def _line(self, within_s: float | None) -> bytes | None:
        """The next one; empty when the other end is closed, nothing when it said nothing yet.

        A service that ends at once has said both by the first look.
        """
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        if not self._read and poll.poll(None if within_s is None else within_s * 1000):
            self._read = os.read(self._told, 32)
            if not self._read:
                return b""
        line, _, self._read = self._read.partition(b"\n")
        return line or None

    def poll(self) -> int | None:
        """The exit code, where it has ended."""
        return self._ended(0.0)

    def _ended(self, within_s: float | None) -> int | None:
        if self.returncode is None and (line := self._line(within_s)) is not None:
            self.returncode = int(line) if line else -signal.SIGKILL
            os.close(self._told)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
            subprocess.TimeoutExpired: it has not come.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), cast(float, timeout))
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def _forker(imported: tuple[str, ...]) -> tuple[socket.socket, dict[str, str]] | None:
    """The socket to a forking process, which starts at the first call, and the variables that it has.

    Processes of one run of pytest-xdist whose variables are alike share it. None where an import starts threads, as
    torch's may beside a GPU: a fork would lose them.
    """
    variables = {**os.environ, **THREADS}
    read = sorted(one for one in variables.items() if not one[0].startswith(UNREAD))
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    name = hashlib.sha256(repr((run, imported, read)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"pl-warm-{name}")
    folder.mkdir(mode=0o700, exist_ok=True)
    ours = _connected(folder, imported, variables)
    atexit.register(ours.close)
    ours.settimeout(START_S)
    try:
        return (ours, variables) if ours.recv(1) else None
    except ConnectionResetError:
        return None


def _connected(folder: Path, imported: tuple[str, ...], variables: dict[str, str]) -> socket.socket:
    """A socket to the forking process that listens in the folder; if there is none, it is started by one alone."""
    ours, path = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), str(folder / LISTENS)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            ours.connect(path)
            return ours
        except OSError:
            Path(path).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(64)
            # Before it runs: it ends when nobody is connected any more.
            ours.connect(path)
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm_start", str(listener.fileno()), *imported],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=REPOSITORY,
                env=variables,
                pass_fds=[listener.fileno()],
            )
        return ours
    finally:
        os.close(lock)


class WarmProcess(ServiceProcess):
    """A `ServiceProcess` that is forked where that is the same: no library reads a variable that differs."""

    def _begin(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], errors: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        forker = _forker(MODULES[command[0]]) if command[0] in MODULES else None
        if forker is None:
            return super()._begin(command, environment, output, errors)
        asked, variables = forker
        other = {name for name, value in environment.items() ^ variables.items()}
        if not all(name.startswith(UNREAD) for name in other):
            return super()._begin(command, environment, output, errors)
        told, telling = os.pipe()
        service = {"command": list(command), "environment": dict(environment), "folder": str(REPOSITORY)}
        socket.send_fds(asked, [json.dumps(service).encode()], [output.fileno(), errors.fileno(), telling])
        os.close(telling)
        return cast("subprocess.Popen[bytes]", Forked(told))
