"""Takes turns with the target over the side socket, on a thread that does nothing else."""

import logging
import threading
import time
from collections.abc import Callable

from services.common.device.threads import stay_on_core
from services.common.pair.turns import Answer, Ask, TurnSocket
from services.common.request.errors import PacelineError

logger = logging.getLogger(__name__)

Draft = Callable[[int, int, int, int, int], None]


class TurnThread:
    """Answers until the connection ends; it ends it itself at a round that was not agreed on."""

    def __init__(
        self, turns: TurnSocket[Answer, Ask], draft: Draft, observe: Callable[[float], object], core: int
    ) -> None:
        """Starts at once. `draft` takes the fields of an ask; `observe` is told the seconds that each draft took."""
        self._turns = turns
        self._draft = draft
        self._observe = observe
        self._core = core
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection and waits for a draft that is being made."""
        self._turns.close()
        self._thread.join()

    def _run(self) -> None:
        stay_on_core(self._core)
        try:
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
        self._draft(*ask)
        micros = (time.perf_counter_ns() - started) // 1000
        self._turns.send(Answer(ask.generation, ask.round, micros))
        self._observe(micros / 1e6)
