"""Passes the arena's descriptors from a target to its drafter over a Unix socket (SCM_RIGHTS).

The target listens in a folder that only its user may enter. A drafter claims them with the generation and the nonce of
the attach request; a stranger gets a refusal and learns nothing. Both may keep the connection of a granted claim for
turns (turns.py).
"""

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_CLAIM = struct.Struct("<QQ")
_CREDENTIALS = struct.Struct("=iII")
_GRANTED = b"\x01"
_REFUSED = b"\x00"
_MAX_DESCRIPTORS = 64
_PEER_TIMEOUT_S = 5.0
_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class Fetched:
    """Descriptors received, the pid that listens (0 when it is not visible), and the connection they came by."""

    descriptors: list[int]
    peer_pid: int
    connection: socket.socket

    def close(self) -> None:
        """Closes all of it; a caller that keeps something closes the rest itself."""
        close_descriptors(self.descriptors)
        self.connection.close()


@dataclass(frozen=True, slots=True)
class _Offer:
    claim: bytes
    descriptors: tuple[int, ...]


class DescriptorListener:
    """The target's end: sends the offered descriptors to a peer that presents their generation and nonce.

    `path` is the socket's; `claimed_by` is the pid of the last peer that was granted a claim, 0 before and when the
    peer is not visible from here.
    """

    def __init__(self, folder: Path) -> None:
        """Creates `folder` with mode 0700 when absent and listens on a new socket in it.

        Raises:
            OSError: the folder or the socket cannot be made; the path may be too long for a Unix socket.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.path = str(folder / f"arena-{secrets.token_hex(4)}.sock")
        self.claimed_by = 0
        self._offer: _Offer | None = None
        self._granted: socket.socket | None = None
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.bind(self.path)
        Path(self.path).chmod(0o600)
        self._socket.listen(4)
        self._thread = threading.Thread(target=self._serve, name="side-socket", daemon=True)
        self._thread.start()

    def offer(self, generation: int, nonce: int, descriptors: Sequence[int]) -> None:
        """Puts descriptors on offer in place of earlier ones; they stay the caller's and are sent as duplicates."""
        self._offer = _Offer(_CLAIM.pack(generation, nonce), tuple(descriptors))

    def take_connection(self) -> socket.socket | None:
        """The connection of the last granted claim, the caller's from now on; None when its peer hung up."""
        granted, self._granted = self._granted, None
        if granted is None or not _hung_up(granted):
            return granted
        granted.close()
        return None

    def withdraw(self) -> None:
        """Ends the offer: every later claim is refused, and a connection that was not taken is closed."""
        self._offer = None
        self._keep(None)

    def close(self) -> None:
        """Stops listening and removes the socket; closing twice is harmless."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._offer = None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._keep(None)
        self._socket.close()
        Path(self.path).unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                peer, _ = self._socket.accept()
            except OSError:
                self._closed.wait(_RETRY_S)
                continue
            peer.settimeout(_PEER_TIMEOUT_S)
            granted = False
            with contextlib.suppress(OSError):
                granted = self._answer(peer)
            if not granted:
                peer.close()

    def _answer(self, peer: socket.socket) -> bool:
        """Whether the claim was granted; the connection then stays open until it is taken."""
        claim = _receive_exactly(peer, _CLAIM.size)
        offer = self._offer
        if offer is None or not hmac.compare_digest(claim, offer.claim):
            peer.sendall(_REFUSED)
            return False
        self.claimed_by = _peer_pid(peer)
        self._keep(peer)
        with contextlib.suppress(OSError):
            socket.send_fds(peer, [_GRANTED], list(offer.descriptors))
        return True

    def _keep(self, connection: socket.socket | None) -> None:
        before, self._granted = self._granted, connection
        if before is not None:
            before.close()


def fetch_descriptors(path: str, generation: int, nonce: int, count: int) -> Fetched:
    """The drafter's end: claims the `count` descriptors on offer at `path`.

    Raises:
        OSError: nobody listens, the claim was refused, or another number of descriptors came.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        peer.settimeout(_PEER_TIMEOUT_S)
        peer.connect(path)
        pid = _peer_pid(peer)
        peer.sendall(_CLAIM.pack(generation, nonce))
        return Fetched(_granted(peer, count), pid, peer)
    except BaseException:
        peer.close()
        raise


def _granted(peer: socket.socket, count: int) -> list[int]:
    answer, descriptors, _, _ = socket.recv_fds(peer, 1, _MAX_DESCRIPTORS)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if answer != _GRANTED or len(descriptors) != count:
        close_descriptors(descriptors)
        raise PermissionError("the side socket refused the claim" if answer != _GRANTED else "wrong descriptor count")
    return descriptors


def close_descriptors(descriptors: Sequence[int]) -> None:
    """Closes descriptors that were received."""
    for descriptor in descriptors:
        os.close(descriptor)


def _peer_pid(peer: socket.socket) -> int:
    pid, _, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)


def _hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _receive_exactly(peer: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = peer.recv(size - len(received))
        if not piece:
            raise ConnectionError("the peer went away")
        received += piece
    return received
