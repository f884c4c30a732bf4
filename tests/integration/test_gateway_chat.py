"""Chats over gRPC: what the template gets, what is refused, and a template that does not end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Reason
from tests.integration.gateway_stack import WAIT_S, Harness, harness, rich
from tests.support.fakes_tokenizer import build_tokenizer

TEMPLATE = """\
{%- for tool in tools or [] %}{{ tool.function.name }}({{ tool.function.parameters | tojson }}){% endfor %}
{%- for message in messages %}
    {%- if message.content == 'loop' %}
        {%- for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}
    {%- endif %}
    {{- '|' ~ message.role ~ ':' ~ message.content }}
    {%- for call in message.tool_calls %}{{ call.id ~ call.function.arguments.at }}{% endfor %}
    {%- if message.tool_call_id %}#{{ message.tool_call_id }}{% endif %}
{%- endfor %}
{{- '' if enable_thinking | default(true) else '|no thinking' }}
"""
USER = {"role": "user", "content": "the fox"}


def asked(**fields: Any) -> inference_pb2.TokenizeRequest:
    return json_format.ParseDict({"prompt": {"chat": {"messages": [USER]} | fields}}, inference_pb2.TokenizeRequest())


async def rendered(one: Harness, **fields: Any) -> str:
    answer = await one.stub.Tokenize(asked(**fields), timeout=WAIT_S)
    text: str = build_tokenizer().decode(list(answer.tokens.ids), skip_special_tokens=False)
    return text


async def test_arguments_tools_and_their_messages_reach_the_template(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    call = {"id": "c1", "name": "f", "arguments": '{"at": 7}'}
    turns = [
        USER,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "ok", "tool_call_id": "c1"},
    ]
    async with harness(tmp_path) as one:
        assert await rendered(one) == "|user:the fox"
        assert (
            await rendered(one, template_arguments={"enable_thinking": {"flag": False}}) == "|user:the fox|no thinking"
        )
        assert await rendered(one, template_arguments={"enable_thinking": {"flag": True}}) == "|user:the fox"
        text = await rendered(one, messages=turns, tools=[{"name": "f", "parameters": '{"type": "object"}'}])
        assert text == 'f({"type": "object"})|user:the fox|assistant:c17|tool:ok#c1'


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [{"name": "f", "parameters": "{"}]}, "prompt.chat.tools[0].parameters"),
        ({"template_arguments": {"tools": {"flag": True}}}, "prompt.chat.template_arguments['tools']"),
    ],
)
async def test_bad_chats_are_refused_by_field(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    async with harness(tmp_path) as one:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await rendered(one, **fields)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (rich(refused.value).field, rich(refused.value).reason) == (field, Reason.INVALID_FIELD)


async def test_a_template_that_does_not_end_holds_nobody_else_up(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    async with harness(tmp_path) as one:
        looping = asyncio.create_task(rendered(one, messages=[USER | {"content": "loop"}]))
        text = inference_pb2.TokenizeRequest(prompt=inference_pb2.Prompt(text="the fox"))
        answered, begun = 0, time.monotonic()
        while not looping.done():
            assert time.monotonic() - begun < WAIT_S
            await one.stub.Tokenize(text, timeout=WAIT_S)
            answered += 1
        assert answered > 20
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await looping
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (rich(refused.value).field, rich(refused.value).reason) == ("prompt.chat", Reason.INVALID_FIELD)
        assert await rendered(one) == "|user:the fox"
