"""Named points of a round where a test can make the engine sleep, fail, stop or die; off by default."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LOG = logging.getLogger(__name__)

VARIABLE = "PACELINE_SYNC_POINTS"
NAMES = ("plan", "draft", "verify", "commit", "emit", "deliver")
"""Points of a round on the engine's thread; "deliver" is on the event loop, which a sleep there blocks."""

_ACTIONS = ("sleep", "pace", "raise", "kill", "stop")


class SyncPointError(RuntimeError):
    """The failure that the action ``raise`` asks for."""


@dataclass(frozen=True, slots=True)
class _Action:
    kind: str
    at_visit: int
    seconds: float


class SyncPoints:
    """Counts visits of each named point and acts at the visit asked for.

    The specification is ``name:action[=seconds][@visit]``, comma separated: ``verify:sleep=30@20,emit:kill@5``.
    The first visit is 1; without ``@visit`` the action happens at the first one. The action ``pace=seconds`` sleeps at
    every visit instead.
    """

    def __init__(self, specification: str = "") -> None:
        """Parses a specification; an empty one makes every visit free.

        Raises:
            ValueError: The specification names no known point or action.
        """
        self._actions = dict(_parse(item) for item in specification.split(",") if item)
        self._visits = dict.fromkeys(self._actions, 0)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> SyncPoints:
        """Reads the specification from ``PACELINE_SYNC_POINTS``."""
        return cls(environ.get(VARIABLE, ""))

    def stand_before(self, **methods: Any) -> None:
        """Visits a point before each call of the bound method that is named by it; others cost nothing."""
        for name, method in methods.items():
            if name in self._actions:
                setattr(method.__self__, method.__name__, self._visited(name, method))

    def _visited(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            self.visit(name)
            return method(*args, **named)

        return called

    def visit(self, name: str) -> None:
        """Passes a point, acting when a test asked for it."""
        action = self._actions.get(name)
        if action is None:
            return
        self._visits[name] += 1
        if action.kind == "pace":
            time.sleep(action.seconds)
        elif self._visits[name] == action.at_visit:
            _act(name, action)


def _parse(item: str) -> tuple[str, _Action]:
    name, _, rest = item.strip().partition(":")
    rest, _, visit = rest.partition("@")
    kind, _, seconds = rest.partition("=")
    if name not in NAMES or kind not in _ACTIONS:
        raise ValueError(f"{VARIABLE}: {item!r} is not name:action[=seconds][@visit] of {NAMES} and {_ACTIONS}")
    return name, _Action(kind, int(visit or 1), float(seconds or 0))


def _act(name: str, action: _Action) -> None:
    if action.kind == "sleep":
        _LOG.info("sync point sleeps", extra={"data": {"point": name, "began": time.monotonic()}})
        time.sleep(action.seconds)
        _LOG.info("sync point slept", extra={"data": {"point": name, "ended": time.monotonic()}})
    elif action.kind == "raise":
        raise SyncPointError(f"sync point {name}")
    else:
        os.kill(os.getpid(), signal.SIGKILL if action.kind == "kill" else signal.SIGSTOP)
