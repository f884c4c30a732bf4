"""Asks for rounds by messages: one out and one back for each, over the side socket or over blocking gRPC.

The side socket serves pairs in host memory, where it is quicker (docs/adr/0009). The Pace stream then stays open: its
end is the end of the attachment. gRPC is used with a blocking reader thread, whose wait does not depend on how busy the
event loop is (docs/adr/0008).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import grpc

from services.common.pair.turns import Answer, Ask
from services.common.pair.wire_convert import answer_from_pb, ask_to_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc

_MOST_REPLIES = 64
"""Most replies that are kept unread; a drafter owes one for each of the few rounds that were asked ahead."""


class Pace(Protocol):
    """Asks for rounds; one thread sends and receives."""

    def send(self, ask: Ask) -> object:
        """Sends without waiting."""
        ...

    def receive(self, timeout_s: float) -> Answer | None:
        """The next answer; None when the drafter has ended it.

        Raises:
            TimeoutError: Nothing came in time.
        """
        ...


class PaceStream:
    """One open Pace stream; ``ended`` is called once, on the reader's thread, when it is over."""

    def __init__(self, stub: rpc.DrafterServiceStub, ended: Callable[[], None]) -> None:
        """Opens the stream."""
        self._requests: queue.SimpleQueue[pb.PaceRequest | None] = queue.SimpleQueue()
        self._replies: queue.Queue[pb.PaceResponse | None] = queue.Queue(_MOST_REPLIES)
        self._ended = ended
        self._call = stub.Pace(self._outgoing())
        self._reader = threading.Thread(target=self._read, name="pace-reader", daemon=True)
        self._reader.start()

    def send(self, ask: Ask) -> None:
        """Sends without waiting."""
        self.put(ask_to_pb(ask))

    def receive(self, timeout_s: float) -> Answer | None:
        """The next answer; None when the stream has ended.

        Raises:
            TimeoutError: Nothing came in time.
        """
        reply = self.take(timeout_s)
        return None if reply is None else answer_from_pb(reply)

    def put(self, message: pb.PaceRequest) -> None:
        """Sends a whole message without waiting."""
        self._requests.put(message)

    def take(self, timeout_s: float) -> pb.PaceResponse | None:
        """The next whole message; None when the stream has ended.

        Raises:
            TimeoutError: Nothing came in time.
        """
        try:
            reply = self._replies.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            raise TimeoutError from None
        if reply is None:
            self._keep(None)
        return reply

    def drop_replies(self) -> None:
        """Drops the replies so far; the end of the stream stays noted."""
        while not self._replies.empty():
            if self._replies.get() is None:
                self._keep(None)
                return

    def close(self) -> None:
        """Ends the stream; closing twice is harmless."""
        self._requests.put(None)
        self._call.cancel()
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=5.0)

    def _outgoing(self) -> Iterator[pb.PaceRequest]:
        return iter(self._requests.get, None)

    def _read(self) -> None:
        try:
            for reply in self._call:
                self._keep(reply)
        except grpc.RpcError:
            pass
        self._requests.put(None)
        self._keep(None)
        self._ended()

    def _keep(self, reply: pb.PaceResponse | None) -> None:
        """Keeps a reply; drops the oldest when a drafter sends more than it was asked for."""
        while True:
            try:
                return self._replies.put_nowait(reply)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._replies.get_nowait()
