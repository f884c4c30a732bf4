"""Runs workers, and ends one that says nothing for too long: a kernel that hangs costs one tiling, not the run."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
_START_SECONDS, _SILENT_SECONDS = 60.0, 10.0
_MOST_WORKERS = 6
_ENDED = None
_STARTING = "start"
Popen = Callable[[list[str]], "subprocess.Popen[str]"]


def started(words: list[str]) -> subprocess.Popen[str]:
    """Start a worker; what it complains of goes to this process's stderr."""
    command = [sys.executable, "-m", "tests.bench.gpu.clusters.worker", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class Overseer:
    """Starts workers until all shapes are timed, the time is up, or too many have died."""

    def __init__(self, folder: Path, end: float, start: Popen = started, silent: float = _SILENT_SECONDS) -> None:
        self._folder, self._end, self._start, self._silent = folder, end, start, silent
        self.candidates: dict[tuple[str, str], Line] = {}
        self.times: dict[str, Line] = {}
        self._skipped: list[str] = []

    def run(self, shapes: list[str], skip: list[str]) -> None:
        """Go through the shapes; `skip` names tilings of shapes, as in shape/tiling."""
        self._skipped = list(skip)
        for _ in range(_MOST_WORKERS):
            left = [shape for shape in shapes if shape not in self.times]
            if not left or time.monotonic() > self._end:
                return
            if not self._watch(left):
                return

    def _watch(self, shapes: list[str]) -> bool:
        """Whether another worker may get further than this one."""
        worker = self._start([str(self._folder), "--shapes", *shapes, "--skip", *self._skipped])
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(worker, lines), daemon=True)
        reader.start()
        doing, patience = _STARTING, _START_SECONDS
        try:
            while (line := lines.get(timeout=max(0.1, min(patience, self._end - time.monotonic())))) is not _ENDED:
                doing, patience = self._noted(line, doing), self._silent
            why = f"error: the worker ended with {worker.wait(timeout=self._silent)}"
        except (queue.Empty, subprocess.TimeoutExpired):
            why = "hangs" if time.monotonic() < self._end else "no time left"
        finally:
            worker.kill()
            worker.wait()
            reader.join(self._silent)
        if doing:
            self._blame(doing, why)
        return doing != _STARTING

    def _noted(self, line: str, doing: str) -> str:
        """What the worker does now; empty between two things."""
        try:
            said: Line = json.loads(line)
        except ValueError:
            print(line.rstrip(), file=sys.stderr)
            return doing
        if "begin" in said:
            return str(said["begin"])
        if "times" in said:
            self.times[said["times"]] = said
        elif "tiling" in said:
            self.candidates[said["shape"], said["tiling"]] = said
            if said["status"].startswith("error"):
                self._skipped.append(f"{said['shape']}/{said['tiling']}")
            self._tell(said)
        return ""

    def _blame(self, doing: str, why: str) -> None:
        shape, _, tiling = doing.partition("/")
        said = {"shape": shape, "tiling": tiling, "status": f"{why} at {doing}"}
        self.candidates[shape, tiling] = said
        self._skipped.append(doing)
        self._tell(said)

    def _tell(self, said: Line) -> None:
        clusters = said.get("clusters_at_once", "")
        print(f"{said['shape']:<8} {said['tiling']:<22} {clusters!s:>4}  {said['status']}", flush=True)


def _read(worker: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert worker.stdout is not None, "it is piped"
    for line in worker.stdout:
        lines.put(line)
    lines.put(_ENDED)
