"""JSON logs, one object a line, with the ids of the present request and its trace; prompt text is never logged."""

import contextvars
import json
import logging
import sys
import time
from typing import Any, TextIO

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
trace_id: contextvars.ContextVar[str] = contextvars.ContextVar("trace_id", default="")
# Attributes that every record has; all others were given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, service, logger, message, ids of request and trace, and what is extra.

    pair is the id of the pair that the process serves; empty for a process that serves none. A field of extra whose
    name is taken gets "extra." before it. The fields of a dictionary given as extra["data"] stand beside the others.
    """

    def __init__(self, service: str, pair: str = "") -> None:
        super().__init__()
        self._service = service
        self._pair = pair

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        entry = begin(record.created, record.levelname.lower(), self._service, self._pair)
        entry |= {"logger": record.name, "message": record.getMessage()}
        if request_id.get():
            entry["request_id"] = request_id.get()
        if trace_id.get():
            entry["trace_id"] = trace_id.get()
        for key, value in _given(record).items():
            entry[f"extra.{key}" if key in entry else key] = value
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def begin(moment: float, level: str, service: str, pair: str) -> dict[str, Any]:
    """The first fields of a line; moment is in seconds since the epoch."""
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}Z"
    return {"time": clock, "level": level, "service": service} | ({"pair": pair} if pair else {})


def _given(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of extra, those of its data included."""
    given = {key: value for key, value in vars(record).items() if key not in _OWN and not key.startswith("_")}
    data = given.pop("data", {})
    return given | ({str(key): value for key, value in data.items()} if isinstance(data, dict) else {"data": data})


def configure(service: str, level: str = "info", pair: str = "", stream: TextIO | None = None) -> None:
    """Sends every log of this process to stderr, or to another stream, as JSON; but no debug line of gRPC.

    gRPC writes those while it holds a lock that its objects take when they are collected. Where another thread collects
    them amid a line of its own, each would wait for the other for ever.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service, pair))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("grpc").setLevel(max(logging.INFO, logging.getLogger().level))
