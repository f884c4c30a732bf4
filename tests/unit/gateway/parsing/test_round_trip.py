"""Every answer is taken when it is sent back, over each API: calls, thoughts, odd characters; 10,000 with --full."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from services.common.request.sampling import FinishReason
from services.gateway.http.answers.chat import ChatAnswer
from services.gateway.http.endpoints.messages import MessageAnswer, read_message
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.endpoints.responses import ResponseAnswer
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.parsing.form import Form, chosen, forms
from services.gateway.streams.events import Delta
from tests.unit.gateway.parsing.slips import TOOLS
from tests.unit.gateway.parsing.test_call_corpus import BODIES, CORPUS, EXCHANGE, final

ODD = (
    "\x00", "\x1f", "\ufffd", "\u2028", "\ud7ff", "\ue000", "\U0010ffff", "\u202e", "\\", '"', "{", "}", "<", ">", "\n",
    "</think>", "<think>", "<tool_call>", "</tool_call>", "<function=now>", "</function>", "<parameter=a>",
    "</parameter>", "<|python_tag|>", '{"name": "now", "arguments": ', "NaN", "1e999", "\\ud800", "'", "9" * 400,
)  # fmt: skip


def text_of(draw: random.Random) -> str:
    """Slips, pieces of them and odd characters in any order."""
    found = ""
    for _ in range(draw.randint(1, 4)):
        slip = draw.choice([*CORPUS.values()]).text
        at = draw.randint(0, len(slip)) if draw.random() < 0.5 else draw.choice((0, len(slip)))
        odd = "".join(draw.choices(ODD, k=draw.randint(0, 4)))
        found += draw.choice((slip, slip[:at] + odd + slip[at:], odd))
    return found


def no_number(name: str) -> None:
    raise AssertionError(f"JSON has no {name}")


def given(draw: random.Random, answer: ChatAnswer) -> Any:
    """The body of an answer that came in two pieces."""
    answer.begin(0, (0,) if draw.random() < 0.3 else ())
    text = text_of(draw)
    at = draw.randint(0, len(text))
    for piece in (text[:at], text[at:]):
        assert not [*answer.messages(0, Delta(0, (), piece))]
    answer.messages(0, final(draw.choice((FinishReason.STOP_TOKEN, FinishReason.LENGTH, FinishReason.STOP_STRING))))
    return json.loads(answer.whole())


def spell(_: int) -> tuple[str, bytes]:
    return "<think>", b""


def chats(draw: random.Random, written: Sequence[Form]) -> tuple[ChatBody, int]:
    """An answer of /v1/chat/completions, sent back with what its tools gave."""
    message = given(draw, ChatAnswer(BODIES[False], EXCHANGE, spell, written))["choices"][0]["message"]
    results = []
    for call in message.get("tool_calls", ()):
        assert isinstance(json.loads(call["function"]["arguments"], parse_constant=no_number), dict)
        results.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    tools = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    chat = [{"role": "user", "content": "x"}, message, *results]
    return parsed(ChatBody, json.dumps({"model": "m", "messages": chat, "tools": tools}).encode()), len(results)


def messages(draw: random.Random, written: Sequence[Form]) -> tuple[ChatBody, int]:
    """The same of /v1/messages."""
    content = given(draw, MessageAnswer(BODIES[False], EXCHANGE, spell, written))["content"]
    ids = [block["id"] for block in content if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "ok"} for one in ids]
    tools = [{"name": name, "input_schema": TOOLS[name]} for name in TOOLS]
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]
    talk.append({"role": "user", "content": [*results, {"type": "text", "text": "y"}]})
    body = {"model": "m", "max_tokens": 9, "messages": talk, "tools": tools}
    return read_message(bytearray(json.dumps(body).encode())), len(results)


def responses(draw: random.Random, written: Sequence[Form]) -> tuple[ChatBody, int]:
    """The same of /v1/responses."""
    tools = [{"type": "function", "name": name, "parameters": TOOLS[name]} for name in TOOLS]
    body = {"model": "m", "tools": tools}
    asked = read_response(bytearray(json.dumps(body | {"input": "x"}).encode()))
    output = given(draw, ResponseAnswer(asked, EXCHANGE, spell, written))["output"]
    ids = [item["call_id"] for item in output if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": one, "output": "ok"} for one in ids]
    talk = [{"role": "user", "content": "x"}, *output, *results]
    return read_response(bytearray(json.dumps(body | {"input": talk}).encode())), len(results)


@pytest.mark.parametrize("api", [chats, messages, responses])
def test_every_answer_may_be_sent_back(
    api: Callable[[random.Random, Sequence[Form]], tuple[ChatBody, int]], full: bool
) -> None:
    draw, names, calls = random.Random(5), sorted(forms()), 0
    for _ in range(10_000 if full else 200):
        body, made = api(draw, chosen("", draw.choice(names)))
        calls += made
        query = chat_query(body, Headers())
        json.dumps(query.prompt.messages, allow_nan=False, ensure_ascii=False).encode()  # type: ignore[union-attr]
    assert calls > 50
