"""What an engine is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from services.target.core.launching import Launching
from services.target.core.messages import RoundNews
from services.target.core.round import RoundRunner
from services.target.engine.emit import Emitter
from services.target.engine.meter import Meter
from services.target.engine.recorder import FlightRecorder
from services.target.engine.requests import RequestHandler
from services.target.scheduling.scheduler import Scheduler


class EngineDeadError(RuntimeError):
    """The device is lost, or rounds keep failing. The process must end, so that its requests move to another target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine works with; ``deliver`` takes the news of each round and must not block.

    ``launching`` lasts while an engine that looks ahead plans and launches a round.
    """

    scheduler: Scheduler
    runner: RoundRunner
    emitter: Emitter
    requests: RequestHandler
    meter: Meter
    recorder: FlightRecorder
    deliver: Callable[[RoundNews], object]
    launching: Launching = field(default_factory=Launching)
    clock: Callable[[], float] = monotonic
