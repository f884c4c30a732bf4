"""Clock, power and throttling of a GPU beside what is measured, as nvidia-smi tells them several times a second."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

_QUERY = "clocks.sm,power.draw,clocks_throttle_reasons.active"
_MILLISECONDS = 200
_IDLE = 1
"""The bit of a GPU that does nothing, which limits nobody."""


@dataclass(frozen=True)
class Sample:
    """One look at the GPU at a monotonic time; `reasons` are NVML's bits of what slows its clock."""

    at: float
    clock_mhz: float
    watts: float
    reasons: int


@dataclass(frozen=True)
class Power:
    """Medians beside some spans of time, and all bits seen; None without a sample."""

    clock_mhz: int | None
    watts: int | None
    reasons: int


def parsed(line: str, at: float) -> Sample | None:
    """Return what a line of `nvidia-smi --format=csv,noheader,nounits` says; None for anything else."""
    parts = [part.strip() for part in line.split(",")]
    with suppress(ValueError):
        clock_mhz, watts, reasons = parts
        return Sample(at, float(clock_mhz), float(watts), int(reasons, 16))
    return None


def beside(samples: Sequence[Sample], spans: Sequence[tuple[float, float]]) -> Power:
    """Return what the GPU did in these spans."""
    inside = [one for one in samples if any(begin <= one.at <= end for begin, end in spans)]
    if not inside:
        return Power(None, None, 0)
    reasons = 0
    for one in inside:
        reasons |= one.reasons & ~_IDLE
    clock_mhz, watts = (statistics.median(values) for values in zip(*((one.clock_mhz, one.watts) for one in inside),
                                                                   strict=True))  # fmt: skip
    return Power(round(clock_mhz), round(watts), reasons)


class Meter:
    """Samples in a thread of its own while its context lasts."""

    def __init__(self, gpu: str = "0") -> None:
        """`gpu` is an index or a UUID, as nvidia-smi takes it."""
        self.samples: list[Sample] = []
        command = ["nvidia-smi", "-i", gpu, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
        self._command = [*command, f"--loop-ms={_MILLISECONDS}"]

    def __enter__(self) -> Meter:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None, "its output is a pipe"
        for line in self._process.stdout:
            sample = parsed(line, time.monotonic())
            if sample is not None:
                self.samples.append(sample)


class NoMeter:
    """Where there is no GPU: no samples."""

    samples: tuple[Sample, ...] = ()

    def __enter__(self) -> NoMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing runs."""


def gpu_names(gpu: str = "0") -> tuple[str, str]:
    """Return name and UUID of a GPU, without a CUDA context of this process."""
    command = ["nvidia-smi", "-i", gpu, "--query-gpu=name,uuid", "--format=csv,noheader"]
    name, uuid = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return name, uuid
