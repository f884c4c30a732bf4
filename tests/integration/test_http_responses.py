"""OpenAI's Responses API: the chats that its bodies are, and answers whole and streamed."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from services.gateway.http.endpoints.responses import ResponseReply
from tests.integration.http_stack import CHAT, chat, serving
from tests.integration.test_http_messages import CALL, JSON, events_of, fake
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client, connected

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "write", "parameters": {"type": "object", "properties": {"text": {}}}}


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "input": "hello", "max_output_tokens": 64, "store": False} | fields


async def streamed(http: Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Events, each named by its type and numbered."""
    async with connected(http.address) as raw:
        await raw.send("POST", PATH, json.dumps(body | {"stream": True}).encode(), JSON)
        assert (await raw.head()).status_code == 200
        text = b"".join([piece async for piece in raw.pieces()]).decode()
    found = []
    for number, event in enumerate(events_of(text)):
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
        assert found[-1]["sequence_number"] == number
    return found


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that a stream makes, by its deltas alone."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append(event["item"])
        elif kind == "response.content_part.added":
            items[event["output_index"]]["content"].append(event["part"])
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            items[event["output_index"]]["content"][0]["text"] += event["delta"]
        elif kind == "response.function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif kind == "response.output_item.done":
            item = items[event["output_index"]]
            item["status"] = event["item"]["status"]
            assert item == event["item"]
    return items


def nameless(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("plain 日本", ["message"]),
        ("<think>\nhm\n</think>\n\nYes.", ["reasoning", "message"]),
        (f"Well.\n{CALL}", ["message", "function_call"]),
        (f"<think>\nhm\n</think>\n{CALL}\n{CALL}", ["reasoning", "function_call", "function_call"]),
    ],
)
async def test_a_stream_joins_to_the_whole_response(tmp_path: Path, text: str, kinds: list[str]) -> None:
    async with serving(tmp_path, [fake(text)], tool_parser="hermes") as (_, http):
        body = asked(max_output_tokens=500, tools=[TOOL])
        whole = TypeAdapter[Any](ResponseReply).validate_python((await http.post(PATH, body)).json, strict=True)
        assert ([item["type"] for item in whole["output"]], whole["status"]) == (kinds, "completed")
        calls = [item for item in whole["output"] if item["type"] == "function_call"]
        assert all(json.loads(call["arguments"]) == {"text": "a </tool_call> 日"} for call in calls)
        events = await streamed(http, body)
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1]["type"] == "response.completed"
        last = events[-1]["response"]
        assert joined(events) == last["output"]
        assert nameless(last["output"]) == nameless(whole["output"])
        assert last["usage"] == whole["usage"]
        back = [{"type": "message", "role": "user", "content": "hello"}, *last["output"]]
        back += [{"type": "function_call_output", "call_id": c["call_id"], "output": "ok"} for c in last["output"]
                 if c["type"] == "function_call"]  # fmt: skip
        assert (await http.post(PATH, asked(input=back, tools=[TOOL]))).status == 200


async def test_what_is_cut_is_incomplete_and_no_call(tmp_path: Path) -> None:
    async with serving(tmp_path, [fake(CALL, ends=False)], tool_parser="hermes") as (_, http):
        whole = (await http.post(PATH, asked(max_output_tokens=30, tools=[TOOL]))).json
        assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert [item["status"] for item in whole["output"]] == ["incomplete"]
        assert [item["type"] for item in whole["output"]] == ["message"]
        assert (await streamed(http, asked(max_output_tokens=30, tools=[TOOL])))[-1]["type"] == "response.incomplete"


async def test_only_the_last_item_of_what_is_cut_is_incomplete(tmp_path: Path) -> None:
    text = "<think>\nhm\n</think>\n\nYes, and so on."
    async with serving(tmp_path, [fake(text, ends=False)]) as (_, http):
        for most in range(4, 60):
            body = asked(max_output_tokens=most)
            whole, events = (await http.post(PATH, body)).json, await streamed(http, body)
            last = events[-1]["response"]
            if not whole["output"]:
                continue  # cut in the tag of the thought
            for told in (whole, last):
                *earlier, cut = (item["status"] for item in told["output"])
                assert (told["status"], cut) == ("incomplete", "incomplete") and set(earlier) <= {"completed"}
            done = [event["item"]["status"] for event in events if event["type"] == "response.output_item.done"]
            assert done == [item["status"] for item in last["output"]]
            if len(whole["output"]) == 2:
                break
        else:
            pytest.fail("no answer was cut behind its thought")


async def test_items_are_the_chat_that_they_tell(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": "{}"}}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I write."}], "id": "m"},
        {"type": "function_call", "call_id": "c", "name": "write", "arguments": "{}", "namespace": None},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]
    plain = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I write.", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    async with serving(tmp_path) as (one, http):
        reply = await http.post(PATH, asked(input=items, instructions="Be brief."))
        assert reply.status == 200, reply.body
        await http.post(CHAT, chat(messages=plain))
        first, second = one.targets[0].starts
        assert [*first.token_ids] == [*second.token_ids]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": 1}]}, "input[0].arguments"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(tmp_path: Path, fields: dict[str, Any], name: str) -> None:
    async with serving(tmp_path) as (_, http):
        reply = await http.post(PATH, asked(**fields))
        assert reply.status == 400
        assert (reply.error["param"] or "").startswith(name)


async def test_a_stream_that_fails_ends_with_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.05)], attempts=1, wait_target_s=0.1) as (one, http):
        found: list[Any] = []
        async with connected(http.address) as raw:
            body = json.dumps(asked(stream=True, max_output_tokens=3000)).encode()
            await raw.send("POST", PATH, body, JSON)
            assert (await raw.head()).status_code == 200
            async for piece in raw.pieces():
                if not found:
                    await one.targets[0].die()
                found.append(piece)
        last = b"".join(found).decode().removesuffix("\n\n").rpartition("\n\n")[2]
        name, data = last.split("\n")
        assert (name, json.loads(data.removeprefix("data: "))["code"]) == ("event: error", "target_lost")
