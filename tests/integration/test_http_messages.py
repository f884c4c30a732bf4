"""Anthropic's Messages API: the chats that its bodies are, and answers whole and streamed."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from services.gateway.http.answers.keep_alive import COMMENT
from services.gateway.http.endpoints.messages import MessageRefusal, MessageReply
from tests.integration.http_stack import CHAT, chat, serving
from tests.integration.test_gateway_security import TENANTS
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import SPECIAL, build_tokenizer
from tests.support.http_client import Client, connected

PATH = "/v1/messages"
JSON = {"content-type": "application/json"}
END = build_tokenizer().get_vocab()[SPECIAL[0]]
TOOL = {"name": "write", "description": "Writes.", "input_schema": {"type": "object", "properties": {"text": {}}}}
CALL = '<tool_call>\n{"name": "write", "arguments": {"text": "a </tool_call> 日"}}\n</tool_call>'


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]} | fields


def fake(text: str, ends: bool = True) -> FakeTarget:
    script = (*build_tokenizer().encode(text, add_special_tokens=False).ids, *((END,) if ends else ()))
    return FakeTarget(script=script, eos=(END,))


def events_of(text: str) -> list[str]:
    """What stands in a stream, without the comments that it gets where its first token comes late."""
    return text.replace(COMMENT.decode(), "").removesuffix("\n\n").split("\n\n")


async def streamed(http: Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Events, each named by its type."""
    async with connected(http.address) as raw:
        await raw.send("POST", PATH, json.dumps(body | {"stream": True}).encode(), JSON)
        assert (await raw.head()).status_code == 200
        text = b"".join([piece async for piece in raw.pieces()]).decode()
    found = []
    for event in events_of(text):
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream makes, as Anthropic's clients add it up."""
    message: dict[str, Any] = events[0]["message"]
    partial: dict[int, str] = {}
    for event in events[1:]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                partial[event["index"]] = partial.get(event["index"], "") + delta["partial_json"]
            else:
                block[delta["type"].removesuffix("_delta")] += delta[delta["type"].removesuffix("_delta")]
        elif event["type"] == "content_block_stop" and event["index"] in partial:
            message["content"][event["index"]]["input"] = json.loads(partial[event["index"]])
        elif event["type"] == "message_delta":
            message |= event["delta"] | {"usage": event["usage"]}
    assert events[-1] == {"type": "message_stop"}
    return message


@pytest.mark.parametrize(
    ("text", "kinds", "reason"),
    [
        ("plain 日本", ["text"], "end_turn"),
        ("<think>\nhm\n</think>\n\nYes.", ["thinking", "text"], "end_turn"),
        (f"Well.\n{CALL}", ["text", "tool_use"], "tool_use"),
        (f"<think>\nhm\n</think>\n{CALL}\n{CALL}", ["thinking", "tool_use", "tool_use"], "tool_use"),
    ],
)
async def test_a_stream_joins_to_the_whole_message(tmp_path: Path, text: str, kinds: list[str], reason: str) -> None:
    async with serving(tmp_path, [fake(text)], tool_parser="hermes") as (_, http):
        body = asked(max_tokens=500, tools=[TOOL])
        reply = await http.post(PATH, body)
        whole = TypeAdapter[Any](MessageReply).validate_python(reply.json, strict=True)
        assert ([block["type"] for block in whole["content"]], whole["stop_reason"]) == (kinds, reason)
        for block in whole["content"]:
            if block["type"] == "tool_use":
                assert (block["name"], block["input"]) == ("write", {"text": "a </tool_call> 日"})
        found = joined(await streamed(http, body))
        for one in (whole, found):
            one.pop("id")
            for block in one["content"]:
                block.pop("id", None)
        assert found == whole


async def test_a_call_that_is_cut_is_text_and_no_call(tmp_path: Path) -> None:
    async with serving(tmp_path, [fake(CALL, ends=False)], tool_parser="hermes") as (_, http):
        whole = (await http.post(PATH, asked(max_tokens=30, tools=[TOOL]))).json
        assert ([block["type"] for block in whole["content"]], whole["stop_reason"]) == (["text"], "max_tokens")
        assert CALL.startswith(whole["content"][0]["text"])


async def test_a_stop_sequence_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path, [fake("one STOP two")]) as (_, http):
        whole = (await http.post(PATH, asked(stop_sequences=["x", "STOP"]))).json
        assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "STOP")
        assert whole["content"] == [{"type": "text", "text": "one "}]


async def test_a_message_has_the_prompt_of_the_chat_that_it_is_and_its_count(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": '{"text": "日"}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I write."},
            {"type": "tool_use", "id": "c", "name": "write", "input": {"text": "日"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "done"}]},
            {"type": "text", "text": "go on"},
        ]},
    ]  # fmt: skip
    plain = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I write.", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "user", "content": "go on"},
    ]
    async with serving(tmp_path) as (one, http):
        body = asked(messages=messages, system=[{"type": "text", "text": "Be brief."}], metadata={"user_id": "u"})
        reply = await http.post(PATH, body)
        assert reply.status == 200, reply.body
        await http.post(CHAT, chat(messages=plain))
        first, second = one.targets[0].starts
        assert [*first.token_ids] == [*second.token_ids]
        count = {name: value for name, value in body.items() if name in ("model", "messages", "system")}
        counted = await http.post(f"{PATH}/count_tokens", count)
        assert counted.json == {"input_tokens": len(first.token_ids)}
        usage = reply.json["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == len(first.token_ids)


@pytest.mark.parametrize(
    ("fields", "status", "kind", "said"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error", "messages[0]"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"model": "other"}, 404, "not_found_error", "The model `other`"),
        ({"foo": 1}, 400, "invalid_request_error", "foo"),
        ({"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": ""}]}]}, 400,
         "invalid_request_error", "messages[0].content[0].type"),
    ],
)  # fmt: skip
async def test_refusals_have_anthropics_form(
    tmp_path: Path, fields: dict[str, Any], status: int, kind: str, said: str
) -> None:
    async with serving(tmp_path) as (_, http):
        reply = await http.post(PATH, asked(**fields))
        told = TypeAdapter[Any](MessageRefusal).validate_python(reply.json, strict=True)
        assert (reply.status, told["error"]["type"]) == (status, kind)
        assert told["error"]["message"].startswith(said)


async def test_a_key_may_stand_where_anthropics_clients_put_it(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    async with serving(tmp_path, tenants=str(path)) as (_, http):
        assert (await http.post(PATH, asked(), {"x-api-key": "key-one"})).status == 200
        wrong = await http.post(PATH, asked(), {"x-api-key": "no"})
        assert (wrong.status, wrong.json["error"]["type"]) == (401, "authentication_error")
