"""One attachment of a drafter: asks for each round's drafts and gives up on a drafter that is late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from services.common.attach import DrafterInfo
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc
from services.common.process import Watched
from services.target.pace import PaceStream
from services.target.plan import Plan

LATE = "late"
LOST = "lost"
_LEAST_WAIT_S = 0.05


class Attachment:
    """Drafts of one generation. The first late answer ends it for good: that drafter is quarantined.

    ``ask`` and ``wait`` belong to the engine's thread; the rest may be called from any.
    """

    def __init__(
        self,
        generation: int,
        info: DrafterInfo,
        stub: rpc.DrafterServiceStub,
        watchdog_s: float,
        process: Watched | None,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[float], object] = lambda seconds: None,
        by_flags: bool = False,
    ) -> None:
        """Opens the Pace stream of an attachment that the drafter has accepted.

        With ``by_flags`` the device waits for the drafts, not the host: ``wait`` then returns at once.
        ``observe`` is told the seconds that each answered round spent on its way, the drafter's own time taken off.
        """
        self.generation = generation
        self.info = info
        self.fallback = ""
        self.watchdog_s = watchdog_s
        self._process = process
        self._clock = clock
        self._observe = observe
        self._asked = 0.0
        self._by_flags = by_flags
        self._ahead = -1
        self._over = threading.Event()
        self._stream = PaceStream(stub, self._stream_ended)

    @property
    def speculating(self) -> bool:
        """Whether the drafter has answered every round so far."""
        return not self._over.is_set()

    def ask(self, plan: Plan) -> None:
        """Sends the round, unless it was asked for ahead; the watchdog's time starts."""
        self._asked = self._clock()
        if plan.number != self._ahead:
            self._send(plan, plan.number)

    def ask_ahead(self, plan: Plan) -> None:
        """Sends the round after `plan`, in its shape, before that round is planned."""
        self._ahead = plan.number + 1
        self._send(plan, self._ahead)

    def give_up(self) -> None:
        """Ends the attachment of a drafter that is late."""
        self._end(LATE)

    def _send(self, plan: Plan, number: int) -> None:
        self._stream.send(
            pb.PaceRequest(
                generation=self.generation,
                round=number,
                bucket=plan.bucket,
                width=plan.width,
                rows=len(plan.rows),
            )
        )

    def wait(self, plan: Plan) -> bool:
        """Waits for the answer to this round, unless the device does; False ends the attachment."""
        if self._by_flags:
            self._stream.drop_replies()
            return self.speculating
        deadline = self._asked + self.watchdog_s
        while self.speculating:
            try:
                reply = self._stream.receive(max(deadline - self._clock(), _LEAST_WAIT_S))
            except TimeoutError:
                self._end(LATE)
                return False
            if reply is not None and (reply.generation, reply.round) == (self.generation, plan.number):
                self._observe(max(self._clock() - self._asked - reply.draft_us / 1e6, 0.0))
                return True
            if reply is None:
                self._end(LOST)
        return False

    def wait_over(self, timeout_s: float | None = None) -> bool:
        """Waits until the attachment has ended, for whatever reason."""
        return self._over.wait(timeout_s)

    def kill(self) -> bool:
        """Kills the drafter's process by pidfd; False when it is not known."""
        if self._process is None:
            return False
        self._process.kill()
        return True

    def close(self) -> None:
        """Ends the stream and with it the attachment."""
        self._end(LOST)
        self._stream.close()
        if self._process is not None:
            self._process.close()

    def _stream_ended(self) -> None:
        self._end(LOST)

    def _end(self, reason: str) -> None:
        if not self._over.is_set():
            self.fallback = reason
            self._over.set()
