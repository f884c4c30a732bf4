"""One attachment of a drafter: asks for each round's drafts and gives up on a drafter that is late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from services.common.pair.attach import DrafterInfo
from services.common.pair.turns import Answer, Ask, TurnSocket
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc
from services.common.serving.process import Watched
from services.target.core.plan import Plan
from services.target.drafting.handoff import Handoff
from services.target.drafting.pace import Pace, PaceStream

LATE = "late"
LOST = "lost"
_LEAST_WAIT_S = 0.05
_EXIT_S = 0.1


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
        observe: Callable[[float], object],
        handoff: Handoff,
        turns: TurnSocket[Ask, Answer] | None = None,
    ) -> None:
        """Opens the Pace stream of an attachment that the drafter has accepted.

        By flags the device waits for the drafts, not the host: ``wait`` then returns at once. With ``turns`` rounds
        are asked and answered there, and the stream only tells when the attachment is over.
        ``observe`` is told the seconds that each answered round spent on its way, the drafter's own time taken off.
        """
        self.generation = generation
        self.info = info
        self.fallback = ""
        self.watchdog_s = watchdog_s
        self._process = process
        self._observe = observe
        self._asked = 0.0
        self._by_flags = handoff.wanted == "flags"
        self._over = threading.Event()
        self._turns = turns
        self._stream = PaceStream(stub, self._stream_ended)
        self._pace: Pace = handoff.pace(self._stream) if turns is None else turns

    @property
    def direct(self) -> bool:
        """Whether rounds are asked past gRPC."""
        return self._turns is not None

    @property
    def speculating(self) -> bool:
        """Whether the drafter has answered every round so far."""
        return not self._over.is_set()

    def ask(self, plan: Plan) -> None:
        """Sends the round; the watchdog's time starts."""
        self._asked = time.monotonic()
        self._pace.send(Ask(self.generation, plan.number, plan.bucket, plan.width, len(plan.rows)))

    def give_up(self) -> None:
        """Ends the attachment of a drafter that is late."""
        self._end(LATE)

    def wait(self, plan: Plan) -> bool:
        """Waits for the answer to this round, unless the device does; False ends the attachment."""
        if self._by_flags:
            self._stream.drop_replies()
            return self.speculating
        deadline = max(self._asked + self.watchdog_s, time.monotonic() + _LEAST_WAIT_S)
        while self.speculating:
            try:
                # A flood of wrong answers must not keep the engine beyond the time that silence would.
                reply = self._pace.receive(_left(deadline))
            except TimeoutError:
                self._end(LATE)
                return False
            if reply is not None and (reply.generation, reply.round) == (self.generation, plan.number):
                self._observe(max(time.monotonic() - self._asked - reply.draft_us / 1e6, 0.0))
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

    def gone(self) -> bool:
        """Whether its process is known to have ended; gives one that is about to some time."""
        return self._process is not None and self._process.wait(_EXIT_S)

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
        if self._turns is not None:
            self._turns.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left
