"""What the services of a pair write, as JSON on the controller's stdout; imports no ray."""

import asyncio
import contextlib
import fcntl
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from services.common.serving import logs
from services.common.serving.unhurried import Unhurried, unhurried

PIPE_BYTES = 1 << 20
LONGEST = 1 << 20
# Ray tells its own log monitor by such lines what a process does.
_RAYS = (b":job_id:", b":actor_name:", b":task_name:")


def pipe_of(folder: Path, service: str) -> Path:
    """Where the lines of a service of the pair with this folder pass."""
    return folder / f"{service}.lines"


def speak(folder: Path, service: str, level: str, pair: str) -> None:
    """Sends what this process logs or prints from here on to the controller, if it runs on this machine.

    Writing never waits, so that no engine stands still: lines that the controller does not read in time are lost. Where
    the controller is on another machine, Ray forwards the lines.
    """
    try:
        descriptor = os.open(pipe_of(folder, service), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        pass
    else:
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)
    logs.configure(service, level, pair, sys.stdout)


class Lines:
    """Reads what one service of a pair writes and gives each line on as one of JSON."""

    def __init__(self, folder: Path, service: str, pair: str, write: Callable[[str], None]) -> None:
        """Makes the pipe; folder is that of the pair, mode 0700."""
        self._service, self._pair, self._write = service, pair, write
        self._path = pipe_of(folder, service)
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        # For writing too, so that it never ends while one process leaves and the next one comes.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._rest = b""
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def close(self) -> None:
        """Gives on what is left, and removes the pipe."""
        asyncio.get_running_loop().remove_reader(self._pipe)
        while self._read():
            pass
        if self._rest:
            self._give(self._rest)
        os.close(self._pipe)
        self._path.unlink(missing_ok=True)

    def _read(self) -> bool:
        """Takes what is there; False when nothing is."""
        try:
            data = os.read(self._pipe, PIPE_BYTES)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._give(line)
        if len(self._rest) > LONGEST:
            self._give(self._rest)
            self._rest = b""
        return True

    def _give(self, line: bytes) -> None:
        if line.strip() and not line.startswith(_RAYS):
            self._write(as_json(line.decode(errors="replace"), self._service, self._pair))


class Printed(io.TextIOBase):
    """Stands for stdout or stderr of a process: lines of its log pass, what a library prints becomes one.

    Nobody waits for the reader of a pipe, as with all logs.
    """

    def __init__(self, stream: TextIO, service: str) -> None:
        super().__init__()
        self._stream, self._service, self._begun = unhurried(stream), service, ""

    def write(self, text: str) -> int:
        """Takes what one call prints, of however many lines; what does not end a line waits for the rest of it."""
        self._begun += text
        if self._begun.endswith("\n") or len(self._begun) > LONGEST:
            self._write_begun()
        return len(text)

    def _write_begun(self) -> None:
        text, self._begun = self._begun.strip(), ""
        if text:
            self._stream.write(as_json(text, self._service) + "\n")
            self._stream.flush()
        if isinstance(self._stream, Unhurried) and (lost := self._stream.lost()):
            self._stream.write(self._told(lost))

    def _told(self, lost: int) -> str:
        return as_json(f"{lost} lines were lost: nobody read them", self._service) + "\n"

    def flush(self) -> None:
        """What stands behind may hold lines; a line that was only begun waits for its end."""
        self._stream.flush()

    def close(self) -> None:
        """Writes what was begun, gives the reader of a pipe a moment for the rest, and tells what was lost."""
        self._write_begun()
        if isinstance(self._stream, Unhurried):
            self._stream.end(self._told)
        super().close()


def as_json(text: str, service: str, pair: str = "") -> str:
    """A line of a service's log as it is; anything else as the message of a new one."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except ValueError:
        pass
    return json.dumps(logs.begin(time.time(), "info", service, pair) | {"message": text.rstrip()})


def to_stdout(line: str) -> None:
    """Writes a line to the stdout of this process; does nothing when its reader is gone."""
    with contextlib.suppress(OSError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
