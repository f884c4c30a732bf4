"""One attachment of a drafter: whether it is in time, its process, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from services.common.pair.attach import DrafterInfo
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc
from services.target.drafting.handoff.pace import PaceStream
from services.target.drafting.peer_pid import DrafterProcess

LATE = "late"
LOST = "lost"
_EXIT_S = 0.1


class Attachment:
    """A drafter of one generation. Once it has ended it never begins again. Any thread may call the methods."""

    def __init__(
        self,
        generation: int,
        info: DrafterInfo,
        stub: rpc.DrafterServiceStub,
        watchdog_s: float,
        process: DrafterProcess,
        observe: Callable[[float], object],
    ) -> None:
        """Opens the Pace stream of an attachment that the drafter has accepted; it ends with that stream.

        `observe` is that of `Attached`.
        """
        self.generation = generation
        self.info = info
        self.watchdog_s = watchdog_s
        self.observe = observe
        self.speculating = True
        self.fallback = ""
        self._process = process
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._at_end: list[Callable[[], object]] = []
        self.stream = PaceStream(stub, self.lose)

    def give_up(self) -> None:
        """Ends the attachment of a drafter that is late."""
        self._end(LATE)

    def lose(self) -> None:
        """Ends the attachment of a drafter that is gone."""
        self._end(LOST)

    def at_end(self, call: Callable[[], object]) -> None:
        """Registers a call for the end of the attachment; runs it at once if that has come."""
        with self._lock:
            if self.speculating:
                self._at_end.append(call)
                return
        call()

    def wait_over(self) -> None:
        """Waits until the attachment has ended, for whatever reason."""
        self._over.wait()

    def kill(self) -> bool:
        """Kills the drafter's process; False when it is not known."""
        return self._process.kill()

    def gone(self) -> bool:
        """Whether its process is known to have ended; waits a moment for one that is about to end."""
        return self._process.wait(_EXIT_S)

    def close(self) -> None:
        """Ends the stream and with it the attachment."""
        self._end(LOST)
        self.stream.close()
        self._process.close()

    def _end(self, reason: str) -> None:
        with self._lock:
            if not self.speculating:
                return
            self.fallback, self.speculating = reason, False
        self._over.set()
        for call in self._at_end:
            call()
