"""A target whose benchmark client pins the width of a run and changes the acceptance between runs: one start for all.

`python -m tests.bench.gpu.pinned` is `python -m services.target` but for five things. While a request that decodes has
a longest draft of its own, every round has the width of the longest of these; the adaptive policy, which would choose
freely below it, neither chooses nor learns then. The rates of synthetic acceptance are read again, from the file named
in the environment, whenever a request begins to decode. The recorder keeps every round of a long plain stream. Rounds
may be written down (`timeline.py`), and embeddings may outweigh layers (`scattered.py`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from services.target.__main__ import main as target_main
from services.target.core.width import Ragged, Width
from services.target.device.synthetic import SyntheticAcceptance
from services.target.engine.recorder import FlightRecorder
from services.target.scheduling.width.policy import WidthPolicy
from services.target.scheduling.width.width import AdaptiveWidth, adaptive_policy
from tests.bench.gpu import timeline
from tests.bench.gpu.scattered import outweighing_embeddings
from tests.bench.gpu.shapes import rates_of

VARIABLE = "BENCH_SCHEDULE"
ROUNDS = 2048  # kept by the recorder: a plain stream has a round for each of its tokens


class Schedule:
    """The rates in use; each captured step of a width reads a tensor of its own."""

    def __init__(self, file: Path) -> None:
        """`file` holds the name of a schedule."""
        self._file = file
        self._name = ""
        self._steps: list[tuple[int, SwitchedAcceptance]] = []

    def make(self, rates: tuple[float, ...], width: int, slots: int, device: torch.device) -> SwitchedAcceptance:
        """What a step calls in place of SyntheticAcceptance."""
        made = SwitchedAcceptance(rates, width, slots, device)
        self._steps.append((width, made))
        return made

    def refresh(self) -> None:
        """Brings the file's rates into the steps, in the order of the device."""
        name = json.loads(self._file.read_text())
        if name == self._name:
            return
        self._name = name
        for width, step in self._steps:
            step.switch(rates_of(name, width), width)


class SwitchedAcceptance(SyntheticAcceptance):
    """Rates that can change under a captured step."""

    @property
    def rates(self) -> list[float]:
        """The rates in use."""
        return self.rates_SK[0].tolist()

    def switch(self, rates: tuple[float, ...], width: int) -> None:
        """Overwrites them in place."""
        known = (*rates, *[0.0] * width)[: width - 1]
        self.rates_SK.copy_(torch.tensor(known, dtype=torch.float32))


class PinnedWidth:
    """The adaptive policy, out of use while requests with a longest draft of their own decode."""

    def __init__(self, adaptive: AdaptiveWidth, schedule: Schedule) -> None:
        """Chooses as `adaptive` does at first."""
        self.widths, self.costs = adaptive.widths, adaptive.costs
        self._adaptive, self._schedule = adaptive, schedule
        self._caps: dict[int, int] = {}
        self._pinned = False

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode; with a cap it pins."""
        self._schedule.refresh()
        if cap is None:
            self._adaptive.join(uid, cap, left)
        else:
            self._caps[uid] = cap

    def leave(self, uid: int) -> None:
        """A request stops decoding."""
        if self._caps.pop(uid, None) is None:
            self._adaptive.leave(uid)

    def observe(
        self, uid: int, drafted: int, accepted: int, ended: bool, path: Sequence[int] = (), trunk: Sequence[int] = ()
    ) -> None:
        """Learns from requests that do not pin."""
        if uid not in self._caps:
            self._adaptive.observe(uid, drafted, accepted, ended, path, trunk)

    def missed(self, uid: int) -> None:
        """Learns from requests that do not pin."""
        if uid not in self._caps:
            self._adaptive.missed(uid)

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """The pinned width, else the adaptive one."""
        self._pinned = bool(self._caps)
        if not self._pinned:
            return self._adaptive.choose(bucket, rows, context)
        return next(width for width in self.widths if int(width) > max(self._caps.values()))

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """What the adaptive policy gives each request."""
        return self._adaptive.takes(width, uids)

    def landed(self, bucket: int, width: Width, committed: int, micros: float | None, context: int = 0) -> None:
        """Learns from rounds that were not pinned."""
        if not self._pinned:
            self._adaptive.landed(bucket, width, committed, micros, context)

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """All rows where widths are pinned."""
        return rows if self._caps else self._adaptive.fitting(buckets, rows, context)

    def plain_micros(self, bucket: int, context: int = 0) -> float:
        """What the adaptive policy knows of a plain round. Rounds of a pinned width are held against none."""
        return 0.0 if self._pinned else self._adaptive.plain_micros(bucket, context)


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    schedule = Schedule(Path(os.environ[VARIABLE]))

    def pinned(*measured: Any) -> WidthPolicy:
        return PinnedWidth(adaptive_policy(*measured), schedule)

    rounds = os.environ.get(timeline.VARIABLE)
    kind = partial(timeline.NotedRounds, Path(rounds)) if rounds else FlightRecorder
    recorder = partial(kind, capacity=ROUNDS)
    with (
        mock.patch("services.target.build_device.adaptive_policy", pinned),
        mock.patch("services.target.device.verify.SyntheticAcceptance", schedule.make),
        mock.patch("services.target.build_services.FlightRecorder", recorder),
        outweighing_embeddings(),
    ):
        return target_main()


if __name__ == "__main__":
    sys.exit(main())
