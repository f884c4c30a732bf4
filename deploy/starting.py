"""What the workers of a pair tell of their start, as lines that people read while they wait."""

import contextlib
import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from services.common.serving.progress import MEASURED, STEPS, WEIGHTS

SPARSE_S = 15.0
"""Between two lines about one stage where a line cannot be renewed."""
_STAGES = {
    WEIGHTS: "reads weights",
    STEPS: "compiles and captures steps",
    MEASURED: "measures rounds",
}


@dataclass(frozen=True)
class Stage:
    """Where one worker is; done and of are bytes for weights, else counts."""

    worker: str
    stage: str
    done: int
    of: int

    @property
    def head(self) -> str:
        """The process, and what it does at present, in words."""
        return f"{self.worker} {_STAGES.get(self.stage, self.stage)}"

    @property
    def text(self) -> str:
        """The same, and how far it is."""
        if self.stage == WEIGHTS:
            return f"{self.head}: {_bytes(self.done, self.of)}"
        return f"{self.head}: {self.done} of {self.of}"


def _bytes(done: int, of: int) -> str:
    unit, size = ("GB", 1e9) if of >= 1e8 else ("MB", 1e6)
    return f"{done / size:.1f} of {of / size:.1f} {unit}"


class Starting:
    """Reads the stages of all workers from the file that the controller writes its lines to."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0
        self._rest = b""
        self._stages: dict[str, Stage] = {}

    def stages(self) -> tuple[Stage, ...]:
        """Stages that are not finished, those told last at the end; all finished ones' last, if none is under way."""
        self._read()
        told = tuple(self._stages.values())
        return tuple(stage for stage in told if stage.done < stage.of) or told[-1:]

    def _read(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        self._read_bytes += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            if (stage := _stage(line)) is not None:
                self._stages.pop(stage.worker, None)
                if stage.of:
                    self._stages[stage.worker] = stage


def _stage(line: bytes) -> Stage | None:
    """The stage that a line tells of; None for one that tells of something else."""
    try:
        record = json.loads(line)
        worker = " ".join(filter(None, (record.get("pair"), record["service"])))
        return Stage(worker, str(record["stage"]), int(record["done"]), int(record["of"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Unfailing(io.TextIOBase):
    """A stream for people: what it cannot take is dropped, for serving is worth more than lines about it."""

    def __init__(self, stream: TextIO, other: TextIO | None) -> None:
        """`other` is told once what became of the stream, as of a full disk or a pipe that nobody reads."""
        self._stream, self._other = stream, other

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    def write(self, text: str) -> int:
        """Writes what the stream takes."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._complain(error)
        return len(text)

    def flush(self) -> None:
        """Flushes what the stream takes."""
        try:
            self._stream.flush()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        other, self._other = self._other, None
        if other is not None:
            with contextlib.suppress(OSError):
                print(f"note: the output is lost: {error.strerror or error}; serving goes on", file=other, flush=True)


class Screen:
    """Steps of a start, one a line; the last line is renewed on a terminal, and elsewhere told now and then."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream or sys.stdout, clock
        self._terminal = self._stream.isatty()
        self._open, self._told_s = "", float("-inf")
        self._heads: set[str] = set()

    def step(self, line: str) -> None:
        """Prints a line with the time of day; one that was being renewed is gone."""
        self.clear()
        print(f"[{time.strftime('%H:%M:%S')}] {line}", file=self._stream, flush=True)

    def renew(self, heads: Collection[str], text: str) -> None:
        """Shows what is being waited for; elsewhere a line when one of the heads is new, and one each SPARSE_S."""
        if not self._terminal:
            if not self._heads.issuperset(heads) or self._clock() - self._told_s >= SPARSE_S:
                self._heads.update(heads)
                self._told_s = self._clock()
                self.step(text)
        elif text != self._open:
            self._open = text
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[:width]}")
            self._stream.flush()

    def clear(self) -> None:
        """Takes the renewed line away."""
        if self._open:
            self._open = ""
            self._stream.write("\r\x1b[K")
            self._stream.flush()
