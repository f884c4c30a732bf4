"""JSON logs, one object a line, with the ids of the present request and its trace; prompt text is never logged."""

import asyncio
import contextvars
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any, TextIO

from services.common.serving.unhurried import Unhurried, unhurried

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
trace_id: contextvars.ContextVar[str] = contextvars.ContextVar("trace_id", default="")
# Attributes that every record has; all others were given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_ENCODED = json.JSONEncoder(default=str).encode
quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""A text as JSON has it."""
Fields = Mapping[str, Any] | Callable[[], str]
"""Fields of a line, or what writes them as the line is written: as JSON does, without the braces about them."""

TOGETHER_S = 0.05
"""Seconds that a line of a call may wait for others: made and written together, each takes half the time."""


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, service, logger, message, ids of request and trace, and what is extra.

    pair is the id of the pair that the process serves; empty for a process that serves none. A field of extra whose
    name is taken gets "extra." before it. The fields of a dictionary given as extra["data"] stand beside the others.
    """

    def __init__(self, service: str, pair: str = "") -> None:
        super().__init__()
        self._service = service
        self._pair = pair
        self._known: dict[tuple[str, str], str] = {}

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        ids = request_id.get(), trace_id.get()
        begun = record.created, record.levelname.lower(), record.name, record.getMessage()
        entry = self._entry(*begun, _given(record), *ids)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _ENCODED(entry)

    def line(self, moment: float, logger: str, message: str, data: Fields, request: str, trace: str) -> str:
        """The line of a record of level info, of that moment, without the record."""
        if not callable(data):
            return _ENCODED(self._entry(moment, "info", logger, message, data, request, trace))
        ids = f', "request_id": {quoted(request)}' if request else ""
        if trace:
            ids += f', "trace_id": {quoted(trace)}'
        return f'{{"time": "{_clock(moment)}"{self._rest(logger, message)}{ids}, {data()}}}'

    def _rest(self, logger: str, message: str) -> str:
        """What stands behind the time of each such line, the same for all."""
        if (found := self._known.get((logger, message))) is None:
            entry = self._entry(0.0, "info", logger, message, {}, "", "")
            del entry["time"]
            found = self._known[logger, message] = f", {_ENCODED(entry)[1:-1]}"
        return found

    def _entry(
        self, moment: float, level: str, logger: str, message: str, given: Mapping[str, Any], request: str, trace: str
    ) -> dict[str, Any]:
        entry = begin(moment, level, self._service, self._pair)
        entry["logger"], entry["message"] = logger, message
        if request:
            entry["request_id"] = request
        if trace:
            entry["trace_id"] = trace
        for key, value in given.items():
            entry[f"extra.{key}" if key in entry else key] = value
        return entry


def begin(moment: float, level: str, service: str, pair: str) -> dict[str, Any]:
    """The first fields of a line; moment is in seconds since the epoch."""
    found = {"time": _clock(moment), "level": level, "service": service}
    if pair:
        found["pair"] = pair
    return found


def _clock(moment: float) -> str:
    return f"{_second(int(moment))}.{int(moment % 1 * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(moment: int) -> str:
    """A whole second, of which a busy service writes hundreds of lines."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _given(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of extra, those of its data included."""
    given = {key: value for key, value in vars(record).items() if key not in _OWN and not key.startswith("_")}
    data = given.pop("data", {})
    return given | ({str(key): value for key, value in data.items()} if isinstance(data, dict) else {"data": data})


def tell(logger: logging.Logger, message: str, data: Fields) -> None:
    """What `logger.info(message, extra={"data": data})` does, for lines that each request has.

    A record would take as long as its line; none is made where the handler of this module alone would have it. On an
    event loop the line may wait for others, `TOGETHER_S` at most; its time is that of the call of this function.
    """
    root = logging.getLogger()
    if len(root.handlers) == 1 and isinstance(root.handlers[0], _Lines) and not (logger.handlers or logger.filters):
        if logger.isEnabledFor(logging.INFO):
            root.handlers[0].tell(logger.name, message, data)
    else:
        logger.info(message, extra={"data": json.loads(f"{{{data()}}}") if callable(data) else data})


class _Lines(logging.StreamHandler[TextIO | Unhurried]):
    """Writes records, and lines without a record; those that wait stand before a record that comes after them."""

    def __init__(self, stream: TextIO | Unhurried, lines: JsonFormatter) -> None:
        super().__init__(stream)
        self.setFormatter(lines)
        self._of = lines
        self._waiting: deque[tuple[float, str, str, Fields, str, str]] = deque()
        self._due: asyncio.AbstractEventLoop | None = None

    def tell(self, logger: str, message: str, data: Fields) -> None:
        """Takes a line of level info; where no event loop runs it is written at once."""
        self._waiting.append((time.time(), logger, message, data, request_id.get(), trace_id.get()))
        if not self._flush_soon():
            self.flush()

    def _flush_soon(self) -> bool:
        """Whether an event loop runs, which does it."""
        loop = asyncio._get_running_loop()
        if loop is not None and loop is not self._due:
            self._due = loop
            loop.call_later(TOGETHER_S, self.flush)
        return loop is not None

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record, and before it what waits."""
        if self._waiting:
            self.flush()
        super().emit(record)

    def close(self) -> None:
        """Writes what waits, tells what was lost, and ends."""
        self.flush()
        if isinstance(self.stream, Unhurried):
            self.stream.end(self._told)
        super().close()

    def flush(self) -> None:
        """Writes what waits; a stream that does not take it costs those lines, as with records."""
        self._due = None
        with suppress(Exception), self.lock or nullcontext():
            if self._waiting:
                self.stream.write("".join(self._lines()))
            super().flush()
            if isinstance(self.stream, Unhurried):
                self._catch_up(self.stream)

    def _catch_up(self, pipe: Unhurried) -> None:
        """What the pipe had no room for is tried again soon, and what was lost is told."""
        if lost := pipe.lost():
            pipe.write(self._told(lost))
        if pipe.behind:
            self._flush_soon()

    def _told(self, lost: int) -> str:
        line = self._of.line(time.time(), __name__, "lines were lost: nobody read them", {"lines": lost}, "", "")
        return line + self.terminator

    def _lines(self) -> Iterator[str]:
        while self._waiting:
            yield self._of.line(*self._waiting.popleft()) + self.terminator


def configure(service: str, level: str = "info", pair: str = "", stream: TextIO | None = None) -> None:
    """Sends every log of this process to stderr, or to another stream, as JSON; but no debug line of gRPC.

    Nobody waits for the reader of a pipe: lines are lost, and counted, where it stands still.
    gRPC writes those while it holds a lock that its objects take when they are collected. Where another thread collects
    them amid a line of its own, each would wait for the other for ever.
    """
    handler = _Lines(unhurried(stream or sys.stderr), JsonFormatter(service, pair))
    # What no line tells: who wrote it, and the thread, is asked of the interpreter for each record otherwise.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("grpc").setLevel(max(logging.INFO, logging.getLogger().level))
