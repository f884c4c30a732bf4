"""python -m tests.bench.gpu.clusters.worker: checks and times tilings, and tells each step in a line of JSON.

A kernel that fails takes the context of this process with it, and one that hangs the process: whoever started it then
starts another without that tiling.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from services.common.device.device import sound
from tests.bench.gpu.clusters.driver import DriverError
from tests.bench.gpu.clusters.rivals import Clustered, Operands
from tests.bench.gpu.clusters.tiling import TILINGS, Tiling
from tests.bench.gpu.products.clock import GpuClock, Replay
from tests.bench.gpu.race.meter import Meter, beside

LOAD_SECONDS, HOT_SECONDS, PASSES = 0.2, 0.03, 3
CUBLAS = ("cuBLAS", False)
_FAILED = 3


def main() -> int:
    """Goes through the shapes; ends early where the GPU no longer works in this process."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.clusters.worker")
    parser.add_argument("folder", type=Path, help="what was built")
    parser.add_argument("--shapes", nargs="+", choices=list(TILINGS), required=True)
    parser.add_argument("--skip", nargs="*", default=[], help="shape/tiling")
    chosen = parser.parse_args()
    torch.empty(1, device="cuda")
    tell(ready=torch.cuda.get_device_name())
    with torch.inference_mode(), Meter() as meter:
        for shape in chosen.shapes:
            skipped = [name.partition("/")[2] for name in chosen.skip if name.startswith(f"{shape}/")]
            if not _Shape(shape, chosen.folder, meter).run(skipped):
                return _FAILED
    return 0


def tell(**words: Any) -> None:
    """A line for who started this."""
    print(json.dumps(words), flush=True)


class _Shape:
    def __init__(self, name: str, folder: Path, meter: Meter) -> None:
        self._name, self._folder, self._meter = name, folder, meter
        tell(begin=f"{name}/operands")
        self._operands, self._clock = Operands(name), GpuClock()
        self._replays: dict[tuple[str, bool], Replay] = {}

    def run(self, skipped: Collection[str]) -> bool:
        """Whether the GPU still works."""
        tell(begin=f"{self._name}/cuBLAS")
        self._replays[CUBLAS] = self._clock.captured(self._operands.cublas_step())
        for tiling in TILINGS[self._name]:
            if tiling.name in skipped:
                continue
            tell(begin=f"{self._name}/{tiling.name}")
            found: dict[str, Any] = {"shape": self._name, "tiling": tiling.name}
            try:
                found |= self._checked(tiling)
            except (DriverError, RuntimeError) as error:
                found["status"] = f"error: {str(error).splitlines()[0]}"
            tell(**found)
            if found["status"].startswith("error") and not sound(torch.device("cuda")):
                return False
        tell(begin=f"{self._name}/times")
        self._time()
        return True

    def _checked(self, tiling: Tiling) -> dict[str, Any]:
        """Compare first alone, then overlapped; only what is equal is captured."""
        clustered = Clustered(tiling, self._operands, self._folder)
        found: dict[str, Any] = {"clusters_at_once": clustered.clusters_at_once(), "status": "equal"}
        for overlapped in (False, True):
            if why := self._operands.wrong(clustered.results(overlapped=overlapped)):
                return found | {"status": f"differs{' overlapped' * overlapped}: {why}"}
        for overlapped in (False, True):
            self._replays[tiling.name, overlapped] = self._clock.captured(clustered.step(overlapped=overlapped))
        return found

    def _time(self) -> None:
        self._clock.hot(self._replays[CUBLAS], LOAD_SECONDS)
        rivals, begin = list(self._replays), time.monotonic()
        times: dict[tuple[str, bool], list[float]] = {rival: [] for rival in rivals}
        for turn in range(PASSES):
            for rival in _turned(rivals, turn):
                micros = self._clock.hot(self._replays[rival], HOT_SECONDS)
                times[rival].append(micros / len(self._operands.cycle))
        power = beside(self._meter.samples, [(begin, time.monotonic())])
        tell(
            times=self._name,
            micros=[
                {"tiling": name, "overlapped": overlapped, "us": round(statistics.median(taken), 2)}
                for (name, overlapped), taken in times.items()
            ],
            clock_mhz=power.clock_mhz,
            watts=power.watts,
        )


def _turned(rivals: Sequence[tuple[str, bool]], turn: int) -> list[tuple[str, bool]]:
    """Each pass begins elsewhere, the second goes the other way."""
    at = turn * len(rivals) // PASSES
    turned = [*rivals[at:], *rivals[:at]]
    return turned[::-1] if turn % 2 else turned


if __name__ == "__main__":
    sys.exit(main())
