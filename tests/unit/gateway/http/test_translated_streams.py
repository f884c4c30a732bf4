"""Streams of /v1/responses and /v1/messages join to the whole answer, whatever was written and wherever it is cut."""

import json
from typing import Any

import pytest

from services.common.request.sampling import FinishReason
from services.gateway.http.endpoints.message_bodies import MessagesBody, chat_of
from services.gateway.http.endpoints.messages import MessageAnswer
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.endpoints.responses import ResponseAnswer
from services.gateway.http.reading.body import parsed
from services.gateway.parsing.form import chosen
from services.gateway.streams.events import Delta
from tests.unit.gateway.parsing.slips import TOOLS, Slip
from tests.unit.gateway.parsing.test_call_corpus import CORPUS, EXCHANGE, MARK, final

Event = dict[str, Any]
SOME = 12
"""Of so many slips one runs by default."""


def response_answer(slip: Slip, stream: bool) -> ResponseAnswer:
    tools = [{"type": "function", "name": name, "parameters": TOOLS[name]} for name in TOOLS]
    asked = {"model": "m", "input": "x", "stream": stream, "tools": tools}
    body = read_response(bytearray(json.dumps(asked).encode()))
    return ResponseAnswer(body, EXCHANGE, lambda _: (MARK, b""), chosen("", slip.form))


def message_answer(slip: Slip, stream: bool) -> MessageAnswer:
    tools = [{"name": name, "input_schema": TOOLS[name]} for name in TOOLS]
    asked = {"model": "m", "max_tokens": 5, "stream": stream, "tools": tools}
    asked["messages"] = [{"role": "user", "content": "x"}]
    body = chat_of(parsed(MessagesBody, json.dumps(asked).encode()))
    return MessageAnswer(body, EXCHANGE, lambda _: (MARK, b""), chosen("", slip.form))


def told(answer: ResponseAnswer | MessageAnswer, slip: Slip, pieces: list[str], end: FinishReason) -> list[bytes]:
    answer.begin(0, (0,) if slip.opened else ())
    sent = [event for piece in pieces for event in answer.messages(0, Delta(0, (), piece))]
    return [*sent, *answer.messages(0, final(end))]


def events(answer: ResponseAnswer | MessageAnswer, slip: Slip, text: str, end: FinishReason) -> list[Event]:
    """What a stream has whose text comes in single characters."""
    sent = b"".join([*told(answer, slip, [*text], end), answer.ending()]).decode()
    return [json.loads(line.removeprefix("data: ")) for line in sent.split("\n") if line.startswith("data: ")]


def whole(answer: ResponseAnswer | MessageAnswer, slip: Slip, text: str, end: FinishReason) -> Event:
    assert not told(answer, slip, [text], end)
    made: Event = json.loads(answer.whole())
    return made


def nameless(items: list[Event]) -> list[Event]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]


def check_items(stream: list[Event]) -> None:
    """Items begin and end one after the other, and every other event is of the open one."""
    assert [event["sequence_number"] for event in stream] == [*range(len(stream))]
    opened, count = "", 0
    for event in stream:
        if event["type"] == "response.output_item.added":
            assert (opened, event["output_index"]) == ("", count)
            opened, count = event["item"]["id"], count + 1
        elif event["type"] == "response.output_item.done":
            assert event["item"]["id"] == opened
            opened = ""
        else:
            assert event.get("item_id", opened) == opened
    assert not opened


def blocks(stream: list[Event]) -> list[Event]:
    """The blocks that a client has; calls whose arguments are no JSON were cut."""
    found: list[Event] = []
    for event in stream:
        if event["type"] == "content_block_start":
            found.append(dict(event["content_block"]) | {"partial_json": ""})
            assert event["index"] == len(found) - 1
        elif event["type"] == "content_block_delta":
            name = {"input_json_delta": "partial_json"}.get(
                event["delta"]["type"], event["delta"]["type"].removesuffix("_delta")
            )
            assert event["index"] == len(found) - 1
            found[-1][name] += event["delta"][name]
    return [block for block in found if completed(block)]


def completed(block: Event) -> bool:
    written = block.pop("partial_json")
    try:
        block |= {"input": json.loads(written)} if block["type"] == "tool_use" else {}
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("share", range(SOME))
def test_streams_join_to_the_whole_answer(share: int, full: bool) -> None:
    for name in [*CORPUS][share :: SOME if full else SOME * SOME]:
        slip = CORPUS[name]
        for text, end in (
            (slip.text, FinishReason.STOP_TOKEN),
            (slip.text[: len(slip.text) * 2 // 3], FinishReason.LENGTH),
            (slip.text[: len(slip.text) // 2], FinishReason.STOP_STRING),
        ):
            stream = events(response_answer(slip, True), slip, text, end)
            check_items(stream)
            made, last = whole(response_answer(slip, False), slip, text, end), stream[-1]["response"]
            assert (nameless(last["output"]), last["status"]) == (nameless(made["output"]), made["status"])
            stream = events(message_answer(slip, True), slip, text, end)
            made = whole(message_answer(slip, False), slip, text, end)
            (last,) = (event["delta"] for event in stream if event["type"] == "message_delta")
            assert (nameless(blocks(stream)), last["stop_reason"]) == (nameless(made["content"]), made["stop_reason"])
