"""Who listens on a Unix socket, as the kernel says it."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("=iII")
_TIMEOUT_S = 1.0


def listener_pid(address: str) -> int:
    """Pid of the process that listens on ``unix:/path``; 0 for other addresses and when nobody answers."""
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
