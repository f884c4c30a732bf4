"""Logs are one JSON object a line and say which request is in hand."""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from services.common.serving import logs
from services.common.serving.logs import JsonFormatter, request_id, trace_id


@pytest.fixture
def kept_loggers() -> Iterator[None]:
    """Handlers and levels are after the test as before."""
    root, grpc = logging.getLogger(), logging.getLogger("grpc")
    handlers, levels = root.handlers[:], (root.level, grpc.level)
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    grpc.setLevel(levels[1])


def record(message: str, *args: object, exc_info: object = None, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("x.y", logging.WARNING, "f.py", 1, message, args, exc_info)  # type: ignore[arg-type]
    vars(made).update(extra)
    return made


def test_a_record_is_one_line_of_json() -> None:
    text = JsonFormatter("target").format(record("two\nlines %d", 7))
    entry = json.loads(text)
    assert "\n" not in text
    assert entry["message"] == "two\nlines 7"
    assert (entry["level"], entry["service"], entry["logger"]) == ("warning", "target", "x.y")
    assert "request_id" not in entry


def test_the_request_in_hand_is_named() -> None:
    token = request_id.set("r-1")
    try:
        assert json.loads(JsonFormatter("t").format(record("m")))["request_id"] == "r-1"
    finally:
        request_id.reset(token)


def test_data_and_exceptions_are_kept() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        entry = json.loads(
            JsonFormatter("t").format(record("m", exc_info=sys.exc_info(), data={"pair": "p", "o": {1}}))
        )
    assert entry["pair"] == "p"
    assert "ValueError: bad" in entry["exception"]


def test_every_extra_field_is_kept_and_none_takes_the_place_of_another() -> None:
    extra = {"blocks": 7, "terms": {"kv": 1}, "level": 3, "data": {"service": "s"}, "_private": 1}
    entry = json.loads(JsonFormatter("t").format(record("planned", **extra)))
    assert (entry["blocks"], entry["terms"]) == (7, {"kv": 1})
    assert (entry["level"], entry["extra.level"], entry["service"], entry["extra.service"]) == ("warning", 3, "t", "s")
    assert "_private" not in entry
    assert json.loads(JsonFormatter("t").format(record("m", data=[1])))["data"] == [1]


def test_a_process_of_a_pair_names_it_in_every_line() -> None:
    assert json.loads(JsonFormatter("t", "pair-2").format(record("m")))["pair"] == "pair-2"
    assert "pair" not in json.loads(JsonFormatter("t").format(record("m")))


@pytest.mark.parametrize(("level", "ours", "theirs"), [("debug", "debug", "info"), ("error", "error", "error")])
@pytest.mark.usefixtures("kept_loggers")
def test_grpc_writes_no_line_for_developers(level: str, ours: str, theirs: str) -> None:
    """It holds a lock then, which the collection of its objects amid another line waits for."""
    stream = io.StringIO()
    logs.configure("target", level, stream=stream)
    for name in ("debug", "info", "error"):
        getattr(logging.getLogger("services.x"), name)("ours")
        getattr(logging.getLogger("grpc._cython.cygrpc"), name)("theirs")
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert next(line["level"] for line in found if line["message"] == "ours") == ours
    assert next(line["level"] for line in found if line["message"] == "theirs") == theirs


WRITTEN_S = 10.0
DATA = {"tenant": "a\n\u00e9", "tokens": 3, "time": "a name that is taken", "odd": {1}}


@pytest.mark.usefixtures("kept_loggers")
@pytest.mark.parametrize("level", ["info", "error"])
def test_a_line_of_a_request_is_what_a_record_would_be(level: str) -> None:
    stream, logger = io.StringIO(), logging.getLogger("x.y")
    logs.configure("gateway", level, "pair-1", stream=stream)
    token = request_id.set("r-1")
    try:
        logger.info("request ended", extra={"data": DATA})
        logs.tell(logger, "request ended", DATA)
    finally:
        request_id.reset(token)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    moments = [line.pop("time") for line in lines]
    assert len(lines) == (2 if level == "info" else 0)
    assert all(len(moment) == len("2026-11-29T20:00:00.000Z") for moment in moments)
    assert not lines or lines[0] == lines[1]


@pytest.mark.usefixtures("kept_loggers")
@pytest.mark.parametrize("trace", ["", "t-1"])
@pytest.mark.parametrize("pair", ["", 'pair "1"'])
def test_a_line_that_is_written_by_hand_is_what_a_record_would_be(pair: str, trace: str) -> None:
    """To the character, but for the time: fields, ids, and what stands before them."""
    stream, logger = io.StringIO(), logging.getLogger("x.y")
    data = {"tenant": 'a\n\u00e9"', "tokens": 3}
    logs.configure("gateway", pair=pair, stream=stream)
    ids = request_id.set('r "1"'), trace_id.set(trace)
    try:
        logger.info('"ended"', extra={"data": data})
        for _ in range(2):
            logs.tell(logger, '"ended"', lambda: json.dumps(data)[1:-1])
    finally:
        request_id.reset(ids[0])
        trace_id.reset(ids[1])
    record, *lines = [line.partition(", ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [record, record]


@pytest.mark.usefixtures("kept_loggers")
def test_a_line_that_is_written_by_hand_reaches_other_handlers_as_fields() -> None:
    stream, kept = io.StringIO(), Kept()
    logs.configure("gateway", stream=stream)
    logging.getLogger().addHandler(kept)
    logs.tell(logging.getLogger("x.y"), "request ended", lambda: '"tokens": 3')
    assert kept.messages == ["request ended"]
    assert json.loads(stream.getvalue())["tokens"] == 3


class Kept(logging.Handler):
    """Keeps the messages of records."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.mark.usefixtures("kept_loggers")
def test_a_line_of_a_request_reaches_other_handlers_too() -> None:
    stream, kept = io.StringIO(), Kept()
    logs.configure("gateway", stream=stream)
    logging.getLogger().addHandler(kept)
    logs.tell(logging.getLogger("x.y"), "request ended", DATA)
    assert kept.messages == ["request ended"] and stream.getvalue().count("\n") == 1


@pytest.mark.usefixtures("kept_loggers")
def test_a_stream_that_takes_no_line_ends_no_request() -> None:
    stream = io.StringIO()
    logs.configure("gateway", stream=stream)
    stream.close()
    logs.tell(logging.getLogger("x.y"), "request ended", DATA)


@pytest.mark.usefixtures("kept_loggers")
async def test_lines_of_requests_wait_for_one_another_and_keep_their_own_ids() -> None:
    stream, logger = io.StringIO(), logging.getLogger("x.y")
    logs.configure("gateway", stream=stream)
    for name in ("r-1", "r-2"):
        token = request_id.set(name)
        logs.tell(logger, "request ended", {"tokens": 3})
        request_id.reset(token)
    assert not stream.getvalue()
    async with asyncio.timeout(WRITTEN_S):
        while not stream.getvalue():
            await asyncio.sleep(0.005)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["request_id"], line["tokens"]) for line in found] == [("r-1", 3), ("r-2", 3)]


@pytest.mark.usefixtures("kept_loggers")
async def test_lines_that_wait_stand_before_what_is_logged_after_them() -> None:
    stream, logger = io.StringIO(), logging.getLogger("x.y")
    logs.configure("gateway", stream=stream)
    logs.tell(logger, "first", {})
    logger.warning("second")
    logs.tell(logger, "third", {})
    logging.getLogger().handlers[0].close()  # as an end of the process does
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["first", "second", "third"]


@pytest.mark.usefixtures("kept_loggers")
def test_lines_reach_the_stream_when_their_loop_has_ended_before_they_were_due() -> None:
    stream = io.StringIO()
    logs.configure("gateway", stream=stream)

    async def tell(message: str) -> None:
        logs.tell(logging.getLogger("x.y"), message, {})

    asyncio.run(tell("first"))
    asyncio.run(tell("second"))
    logging.getLogger().handlers[0].flush()
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["first", "second"]
