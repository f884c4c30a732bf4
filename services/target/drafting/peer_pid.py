"""The process of a drafter, as far as it can be known."""

from __future__ import annotations

import socket
import struct
from typing import Protocol

from services.common.serving.process import Watched

_CREDENTIALS = struct.Struct("=iII")
_TIMEOUT_S = 1.0


class DrafterProcess(Protocol):
    """The process at the other end of an attachment."""

    def kill(self) -> bool:
        """Kills it; False when it is not known which one it is."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Waits until it ends; False when it still runs, or is not known."""
        ...

    def close(self) -> None:
        """Ends the watch; a second call does nothing."""
        ...


class UnknownProcess:
    """A process that cannot be seen from here."""

    def kill(self) -> bool:
        """Kills nothing; returns false."""
        return False

    def wait(self, timeout_s: float) -> bool:
        """Returns false: it is never known to have ended."""
        return False

    def close(self) -> None:
        """Holds nothing."""


def watched_process(pid: int) -> DrafterProcess:
    """The process of this pid; unknown where the pid is 0, or it cannot be watched."""
    try:
        return Watched(pid) if pid > 0 else UnknownProcess()
    except OSError:
        return UnknownProcess()


def listener_pid(address: str) -> int:
    """Pid of the process that listens on ``unix:/path``; 0 for other addresses and without an answer."""
    scheme, _, path = address.partition(":")
    if scheme != "unix":
        return 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(_TIMEOUT_S)
        try:
            peer.connect(path)
        except OSError:
            return 0
        pid, _, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)
