"""A target as in `tests.bench.gpu.pinned`, whose verify steps stamp the time between their parts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

from services.common.kernels.accept import accept
from services.common.kernels.mailbox import publish_slots
from services.common.model import Target
from services.target.device.context import Pool
from services.target.device.verify import VerifyStep
from tests.bench.gpu import pinned
from tests.bench.gpu.parts.stamps import Point, Stamps

_VERIFY = "services.target.device.verify"


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    stamps = Stamps()
    run = VerifyStep.run

    def stamped(step: VerifyStep) -> None:
        stamps.step = (step._bucket, step._width) if step._width > 1 else None
        run(step)
        stamps.step = None

    def before_publishing(*args: Any) -> None:
        stamps.at(Point.CONTEXT_WRITTEN)
        publish_slots(*args)
        stamps.at(Point.PUBLISHED)

    with ExitStack() as patches:
        for where, name, new in (
            (VerifyStep, "run", stamped),
            (VerifyStep, "_take", _before(stamps, Point.DRAFTS_READ, VerifyStep._take)),
            (Target, "forward", _before(stamps, Point.FORWARD, Target.forward)),
            (Pool, "logits", _before(stamps, Point.HEAD, Pool.logits)),
        ):
            patches.enter_context(mock.patch.object(where, name, new))
        patches.enter_context(mock.patch(f"{_VERIFY}.accept", _before(stamps, Point.COMMITTED, accept)))
        patches.enter_context(mock.patch(f"{_VERIFY}.publish_slots", before_publishing))
        try:
            return pinned.main()
        finally:
            stamps.leave("target")


def _before(stamps: Stamps, point: Point, call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, stamped when its work is done."""

    def stamped(*args: Any, **named: Any) -> Any:
        result = call(*args, **named)
        stamps.at(point)
        return result

    return stamped


if __name__ == "__main__":
    sys.exit(main())
