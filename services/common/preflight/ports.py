"""Whether addresses can be listened on; imports no torch."""

import errno
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from services.common.preflight.problem import Problem

_UNIX = "unix:"
_LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path on Linux."""


def port_problem(flag: str, address: str, more: Iterable[str] = ()) -> Problem | None:
    """What keeps a listener from host:port; `flag` is how people set it, `more` are addresses taken by other flags."""
    if not address:
        return None
    if address.startswith(_UNIX):
        return _socket_problem(flag, address.removeprefix(_UNIX).removeprefix("//"))
    if "://" in address:
        return Problem(flag, f"{address!r} is not host:port", f"leave out {address.partition('://')[0]}://")
    host, _, port = address.rpartition(":")
    if not host or host.startswith("[") != host.endswith("]") or not port.isdecimal() or int(port) > 0xFFFF:
        return Problem(flag, f"{address!r} is not host:port", f"write it as in {flag} 127.0.0.1:8000")
    if int(port) and address in more:
        return Problem(flag, f"{address} is taken by another flag", "give each listener a port of its own")
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return Problem(flag, f"{address}: the host is not known: {error.strerror}")
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
            probe.listen(1)
        except OSError as error:
            return _refused(flag, host, int(port), error)
    return None


def _socket_problem(flag: str, name: str) -> Problem | None:
    """What keeps a listener from a Unix socket; one that is left over is replaced, and folders of it are made."""
    path, length = Path(name), len(os.fsencode(name))
    if not name or length > _LONGEST_SOCKET:
        return Problem(flag, f"{name[:40]!r}: a socket's path has 1 to {_LONGEST_SOCKET} bytes, not {length}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        return Problem(flag, f"{above} is no folder", "give another path")
    if not os.access(above, os.W_OK | os.X_OK):
        return Problem(flag, f"{above} may not be written by this user", "give a path in a folder of yours")
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        return Problem(flag, f"{path} is there and is no socket", "give another path")
    return None


def _refused(flag: str, host: str, port: int, error: OSError) -> Problem:
    address = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return Problem(flag, f"{address} is in use", f"end what listens there, or {flag} {host}:0 takes a free port")
    if error.errno == errno.EADDRNOTAVAIL:
        return Problem(flag, f"{address}: no interface of this machine has that address", "0.0.0.0 listens on all")
    if error.errno == errno.EACCES:
        return Problem(flag, f"{address} may not be bound by this user", "take a port above 1023")
    return Problem(flag, f"{address} cannot be bound: {error.strerror}")
