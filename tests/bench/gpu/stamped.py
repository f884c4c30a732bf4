"""python -m tests.bench.gpu.stamped: a target or a drafter whose rounds say when each of their parts began.

Steps write the GPU's clock between their parts, and the host notes its own between calls. A drafter runs where no
drafter's model is named. Files in the folder that the environment names ask for what was noted (`nodes_trace.py`).
"""

# mypy: allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl
from torch import Tensor

import services.drafter.attachment as drafter
import services.drafter.proposers.checkpoint as checkpoint
import services.target.device.verify as verify
from services.drafter.__main__ import main as drafter_main
from services.drafter.handoff.flags import FlagHandoff
from services.target.__main__ import main as target_main
from services.target.device.context import Pool
from services.target.device.runner import Runner
from services.target.drafting.handoff.flags import FlagDrafts
from services.target.engine.engine import Engine
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.width.policy import FixedWidth

FOLDER, CHAINS, BUCKETS = "BENCH_STAMPS", "BENCH_CHAINS", "BENCH_BUCKETS"
"""Variables: where files are, whether a target that may check trees shall check chains alone, and the greedy rounds
that are captured, by their rows."""
PLACES = 1 << 15
_POLL_S, _TRIES = 0.05, 200


@triton.jit
def _stamp_kernel(places_ptr, cursor_ptr, round_ptr, WHICH: tl.constexpr, PLACES: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    now = tl.extra.cuda.globaltimer()
    at = tl.atomic_add(cursor_ptr, 1) % PLACES * 3
    tl.store(places_ptr + at, tl.load(round_ptr))
    tl.store(places_ptr + at + 1, WHICH)
    tl.store(places_ptr + at + 2, now)


class Stamps:
    """What one process noted: places `[PLACES, 3]` (round, part, ns) of its GPU, and calls of its host."""

    def __init__(self) -> None:
        self.places_P3 = torch.zeros(0, 3, dtype=torch.int64)
        self._cursor_1 = torch.zeros(1, dtype=torch.int64)
        self.round_2: Tensor | None = None
        self.calls: list[tuple[Any, ...]] = []

    def on(self, device: torch.device) -> None:
        """Takes memory of a GPU, before anything is captured."""
        if device.type == "cuda" and not len(self.places_P3):
            self.places_P3 = torch.zeros(PLACES, 3, dtype=torch.int64, device=device)
            self._cursor_1 = torch.zeros(1, dtype=torch.int64, device=device)

    def put(self, which: int) -> None:
        """Enqueues a stamp of the step that is made now."""
        if self.round_2 is not None and self.round_2.is_cuda:
            _stamp_kernel[(1,)](
                self.places_P3, self._cursor_1, self.round_2, WHICH=which, PLACES=PLACES, num_warps=1
            )  # fmt: skip

    def call(self, name: str, number: int, began: int, *more: object) -> None:
        """Notes a call of the host that ends now."""
        self.calls.append((name, number, began, time.time_ns(), *more))

    def told(self) -> dict[str, Any]:
        """All that was noted, and by how much the GPU's clock is ahead of the host's, ns; then forgets it."""
        places, ahead = self.places_P3.tolist(), self._ahead()
        told = {"places": [one for one in places if one[2]], "calls": self.calls[:], "ahead": ahead}
        self.calls.clear()
        self.places_P3.zero_()
        return told

    def _ahead(self) -> int:
        if not len(self.places_P3):
            return 0
        places_23, cursor_1 = torch.zeros(2, 3, dtype=torch.int64, device="cuda"), torch.zeros_like(self._cursor_1)
        found = []
        for _ in range(_TRIES):
            torch.cuda.synchronize()
            cursor_1.zero_()
            torch.cuda.synchronize()
            began = time.time_ns()
            _stamp_kernel[(1,)](places_23, cursor_1, cursor_1, WHICH=99, PLACES=2, num_warps=1)
            torch.cuda.synchronize()
            ended = time.time_ns()
            found.append((ended - began, int(places_23[0, 2]) - (began + ended) // 2))
        return min(found)[1]


STAMPS = Stamps()


def _before(owner: Any, name: str, which: int) -> Any:
    made = getattr(owner, name)

    def stamped(*args: Any, **kwargs: Any) -> Any:
        STAMPS.put(which)
        return made(*args, **kwargs)

    return mock.patch.object(owner, name, stamped)


def _behind(owner: Any, name: str, which: int) -> Any:
    made = getattr(owner, name)

    def stamped(*args: Any, **kwargs: Any) -> Any:
        done = made(*args, **kwargs)
        STAMPS.put(which)
        return done

    return mock.patch.object(owner, name, stamped)


def _step(owner: Any, name: str, round_of: Callable[..., Tensor | None], first: int, last: int) -> Any:
    """A step between a first stamp and a last one; without a round's number it has none."""
    made = getattr(owner, name)

    def stamped(*args: Any, **kwargs: Any) -> Any:
        STAMPS.round_2 = round_of(*args)
        STAMPS.put(first)
        done = made(*args, **kwargs)
        STAMPS.put(last)
        STAMPS.round_2 = None
        return done

    return mock.patch.object(owner, name, stamped)


def _on_device(owner: Any, name: str, device_of: Callable[[Any], torch.device]) -> Any:
    made = getattr(owner, name)

    def begun(self: Any, *args: Any, **kwargs: Any) -> Any:
        STAMPS.on(device_of(self))
        return made(self, *args, **kwargs)

    return mock.patch.object(owner, name, begun)


def _noted(owner: Any, name: str, round_of: Callable[..., tuple[int, ...]]) -> Any:
    """A call of the host; `round_of` takes what it returned and was given, and tells its round first."""
    made = getattr(owner, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        began = time.time_ns()
        done = made(*args, **kwargs)
        STAMPS.call(name, round_of(done, *args)[0], began, *round_of(done, *args)[1:])
        return done

    return mock.patch.object(owner, name, noted)


def _of_plan(done: object, self: object, plan: Any, *more: object) -> tuple[int, ...]:
    return (plan.number, int(plan.width), int(plan.nodes), int(bool(plan.chunks)), len(plan.rows))


def _of_round(done: object, self: object, round_: Any) -> tuple[int, ...]:
    return (round_.plan.number,)


def patches() -> list[Any]:
    """What makes both kinds of process note their rounds."""
    return [
        _step(verify.VerifyStep, "run", lambda step, *_: step._inputs.expected_2 if step._width > 1 else None, 0, 6),
        _before(verify, "read_mailbox", 1), _before(verify, "prepare_span", 2), _before(Pool, "logits", 3),
        _before(verify, "accept", 4), _behind(verify, "accept", 5),
        _step(drafter, "_draft_round", lambda _shared, _proposer, _handoff, stamp_2, *_: stamp_2, 10, 13),
        _behind(FlagHandoff, "hold", 11), _before(drafter, "write_mailbox", 12),
        _before(checkpoint, "choose_nodes", 14),
        _on_device(Runner, "warm_up", lambda runner: runner.pool.device),
        _on_device(drafter.DraftRunner, "warm_up", lambda runner: runner._stamp_2.device),
        _noted(Engine, "_plan", lambda done, *_: (done.plan.number,)), _noted(Scheduler, "commit", _of_plan),
        _noted(Runner, "prepare", _of_plan), _noted(Runner, "launch", _of_plan), _noted(FlagDrafts, "ask", _of_plan),
        _noted(FlagDrafts, "watch", _of_plan),
        _noted(Engine, "_commit", _of_round), _noted(Engine, "_emit", _of_round),
        _noted(drafter.DraftRunner, "draft", lambda _done, _self, number, *_: (number,)),
    ]  # fmt: skip


def _serve(folder: Path, side: str) -> None:
    """Answers files: `dump-N` with what was noted, `profile-N` with the kernels that ran until `stop-N` was there."""
    for number in range(1 << 20):
        while not (asked := [name for name in ("dump", "profile") if (folder / f"{name}-{number}").exists()]):
            time.sleep(_POLL_S)
        told = STAMPS.told() if asked == ["dump"] else _kernels(folder / f"stop-{number}")
        fresh = folder / f"{side}-{number}.fresh"
        fresh.write_text(json.dumps(told))
        fresh.rename(folder / f"{side}-{number}.json")


def _kernels(stop: Path) -> dict[str, Any]:
    activity = torch.profiler.ProfilerActivity
    one = activity.CUDA if torch.cuda.is_available() else activity.CPU
    with torch.profiler.profile(activities=[one]) as profile:
        while not stop.exists():
            time.sleep(_POLL_S)
    results: Any = profile.profiler
    events = [] if one is activity.CPU else results.kineto_results.events()
    kernels = sorted((each.start_ns(), each.duration_ns(), each.name()) for each in events if each.duration_ns())
    return {"kernels": kernels}


def main() -> int:
    """Runs the service until SIGTERM; returns the exit code."""
    target, every = "--drafter-model" in sys.argv, patches()
    if os.environ.get(CHAINS) == "1":
        every.append(mock.patch("services.target.build_device.FixedWidth", lambda width, _: FixedWidth(int(width))))
    if target and os.environ.get(BUCKETS):
        buckets = tuple(map(int, os.environ[BUCKETS].split(",")))
        every.append(mock.patch("services.target.build_device.buckets_of", return_value=buckets))
        every.append(mock.patch("services.target.device.steps.MODES", ("greedy",)))
    for one in every:
        one.start()
    folder, side = Path(os.environ[FOLDER]), "target" if target else "drafter"
    threading.Thread(target=_serve, args=(folder, side), daemon=True).start()
    return target_main() if target else drafter_main()


if __name__ == "__main__":
    sys.exit(main())
