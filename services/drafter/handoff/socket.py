"""Hand-off by the side socket: a thread of its own takes requests for rounds there and answers them."""

import logging
import socket
import threading
import time
from collections.abc import Callable

from torch import Tensor

from services.common.device.threads import stay_on_core
from services.common.pair.turns import Answer, Ask, answering_end
from services.common.request.errors import PacelineError
from services.drafter.handoff.protocol import Fill, SharedMemory

logger = logging.getLogger(__name__)


class Turns:
    """Takes requests on a thread, and answers them where the target waits for that. A bad one ends the connection."""

    def __init__(self, connection: socket.socket, answers: bool = True) -> None:
        """Owns the connection."""
        self._turns, self._answers = answering_end(connection), answers
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)

    def serve(
        self, fill: Fill, observe: Callable[[float], object], core: int, begin: Callable[[], object] = tuple
    ) -> None:
        """Starts the thread, on that core; it calls `begin` first."""
        self._fill, self._observe, self._core, self._begin = fill, observe, core, begin
        self._thread.start()

    def close(self) -> None:
        """Ends the connection and waits for a draft that is being made."""
        self._turns.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        stay_on_core(self._core)
        try:
            self._begin()
            while (ask := self._turns.receive(None)) is not None:
                self._answer(ask)
        except PacelineError as error:
            logger.warning("a round was not agreed on: %s", error)
        except Exception:
            logger.exception("drafting failed")
        finally:
            self._turns.close()

    def _answer(self, ask: Ask) -> None:
        started = time.perf_counter_ns()
        self._fill(*ask)
        micros = (time.perf_counter_ns() - started) // 1000
        if self._answers:
            self._turns.send(Answer(ask.generation, ask.round, micros))
        self._observe(micros / 1e6)


class SocketHandoff(Turns, SharedMemory):
    """For an arena in host memory. A round without a captured step ends the connection."""

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """Does nothing: the message came after the inputs."""

    def begin(self, number: int, bucket: int, behind_prompts: bool) -> None:
        """Does nothing: the inputs are written."""

    def end(self, number: int) -> None:
        """Does nothing: a mailbox in host memory is filled when the draft returns."""
