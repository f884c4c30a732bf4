"""Bodies and headers at random: an answer or a refusal that the OpenAPI document names, never a defect's."""

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from services.gateway.http.endpoints.openapi import document
from services.gateway.http.schema.replies import ErrorReply
from tests.integration.gateway_stack import ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.support.http_client import connected

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FULL: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.1,
    "n": 2,
    "min_tokens": 1,
    "stop": ["a", "b"],
    "stop_token_ids": [3],
    "ignore_eos": True,
    "logit_bias": {"5": 1.5},
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "paceline": {"speculation": True, "max_draft": 3, "priority": 1, "drafts": True, "reasoning": True},
    "user": "u",
    "metadata": {"a": "b"},
}
CHAT_BODY = chat(
    messages=[
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "r"},
        {"role": "tool", "content": "1", "tool_call_id": "c"},
    ],
    max_tokens=4,
    logprobs=True,
    top_logprobs=2,
    tools=[TOOL],
    tool_choice="auto",
    response_format={"type": "text"},
    chat_template_kwargs={"enable_thinking": False},
    **FULL,
)
COMPLETION_BODY = completion([7, 8, 9], max_tokens=4, logprobs=2, echo=False, suffix="", **FULL)
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "\0", "\ud800", "x" * 2000, "null", "auto", [], [None], [0], [[0]], ["x"] * 2000, [2**40], {}, {"": 1},
    {"type": "text"}, {"1": 1}, {"99999999999": 1}, {"x": {"x": {"x": []}}}, [{}], [{"role": "user"}], [CALL], [TOOL],
    {"type": "json_object"},
)  # fmt: skip
RAW = (
    b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"{}" * 3, b"[" * 100_000, b'{"a":' * 50_000,
    b'{"model": "\\ud800"}', b'{"model": "fake", "model": 1}', b"\xef\xbb\xbf{}",
    b'{"seed": 1' + b"0" * 5000 + b"}", b'{"model": "\xc3("}',
)  # fmt: skip
NAMES = (
    "content-type", "content-length", "transfer-encoding", "expect", "connection", "upgrade", "origin", "x-request-id",
    "x-request-timeout", "idempotency-key", "authorization", "host", "x", "traceparent",
)  # fmt: skip
VALUES = (
    "", "a", "0", "-1", "1e400", "chunked", "gzip", "100-continue", "close", "websocket", "upgrade", "\xff\xfe",
    "x" * 9000, "application/json", "Bearer x", "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
)  # fmt: skip
PATHS = (COMPLETIONS, "/", "*", "//", "/%ff%00", "/v1/models/" + "x" * 500, "http://a/v1/models")


def places(value: Any) -> list[tuple[Any, Any]]:
    """Containers and the keys in them, at every depth."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def mutated(body: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The body with one to three values replaced, removed or added."""
    made: dict[str, Any] = json.loads(json.dumps(body))
    for _ in range(chance.choice([1, 1, 2, 3])):
        holder, key = chance.choice(places(made))
        kind = chance.random()
        if kind < 0.7:
            holder[key] = deepcopy(chance.choice(JUNK))
        elif kind < 0.85 and isinstance(holder, dict):
            del holder[key]
        elif isinstance(holder, dict):
            holder[chance.choice(["foo", "", "functions", "best_of", "x" * 300])] = deepcopy(chance.choice(JUNK))
    return made


async def test_no_body_makes_the_gateway_fail(tmp_path: Path, full: bool, seed: int) -> None:
    chance = random.Random(seed)
    documented = document()["paths"]
    seen: set[int] = set()
    async with serving(tmp_path) as (one, http):
        asked: list[tuple[str, bytes]] = [(path, raw) for path in (CHAT, COMPLETIONS) for raw in RAW]
        for _ in range(10_000 if full else 300):
            path, body = chance.choice([(CHAT, CHAT_BODY), (COMPLETIONS, COMPLETION_BODY)])
            asked.append((path, json.dumps(mutated(body, chance)).encode()))
        for path, raw in asked:
            reply = await http.post(path, raw)
            seen.add(reply.status)
            assert str(reply.status) in documented[path]["post"]["responses"], (reply, raw[:500])
            assert reply.status < 500 and b"internal error" not in reply.body, (reply, raw[:500])
            if reply.status != 200:
                TypeAdapter(ErrorReply).validate_python(reply.json, strict=True)
        assert {200, 400} <= seen <= {200, 400, 404}
        assert (await one.ask(ask_for())).final is not None


async def test_no_headers_make_the_gateway_fail(tmp_path: Path, full: bool, seed: int) -> None:
    chance = random.Random(seed)
    body = json.dumps(completion(max_tokens=1)).encode()
    async with serving(tmp_path) as (one, http):
        for _ in range(5000 if full else 150):
            lines = [f"{chance.choice(NAMES)}: {chance.choice(VALUES)}" for _ in range(chance.randrange(6))]
            method = chance.choice(["POST", "GET", "OPTIONS", "HEAD", "BREW", "CONNECT"])
            path = chance.choice(PATHS)
            first = [f"{method} {path} HTTP/1.{chance.choice('01')}", "host: localhost"]
            head = [*first, f"content-length: {len(body)}", *lines]
            async with connected(http.address) as raw:
                raw.writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + body)
                status = (await raw.reader.readline()).split(b" ")
                assert len(status) > 1 and status[1] < b"5", (status, method, path, lines)
        assert (await one.ask(ask_for())).final is not None
        assert (await http.post(COMPLETIONS, body)).status == 200
