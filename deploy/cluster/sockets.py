"""How long the path of a run's folder may be: Ray and pairs have Unix sockets in it; imports no ray."""

import os
import tempfile

_LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path on Linux."""

_RUN = "/paceline-12345678/c"
_LONGEST_PID = 4_194_304
SHORT = "/tmp"


def longest(pid: int) -> int:
    """Bytes that the path of a controller's folder may have, if Ray is started by this process."""
    return _LONGEST_SOCKET - len(f"/ray/session_2026-12-01_00-00-00_000000_{pid}/sockets/plasma_store")


def base() -> str:
    """Where folders of runs are made: TMPDIR, and /tmp where the paths of sockets below TMPDIR would be too long."""
    found = tempfile.gettempdir()
    return found if len(os.fsencode(found)) + len(_RUN) <= longest(_LONGEST_PID) else SHORT


def refuse_long(run_dir: str) -> None:
    """Refuses a folder that was chosen in which Ray could make no socket.

    Raises:
        ValueError: its path is too long.
    """
    length = len(os.fsencode(os.path.abspath(run_dir))) if run_dir else 0
    if length > (most := longest(os.getpid())):
        raise ValueError(f"run_dir: {run_dir}: its path has {length} bytes, and sockets of Ray leave it {most}")
