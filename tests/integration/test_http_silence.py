"""What keeps clients and proxies patient, and what they are told beside the answer."""

import asyncio
import gzip
import json
import zlib
from pathlib import Path

import pytest

from services.common.request.errors import overloaded
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES
from services.gateway.http.answers import keep_alive
from tests.integration.gateway_stack import ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import build_tokenizer
from tests.support.http_client import connected
from tests.support.metrics import value_of

JSON = {"content-type": "application/json"}
COMMENT = keep_alive.COMMENT


async def test_headers_and_comments_come_while_a_stream_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "SILENT_S", 0.1)
    async with serving(tmp_path) as (one, http), connected(http.address) as raw:
        await http.post(COMPLETIONS, completion())
        one.targets[0].stall()
        await raw.send("POST", COMPLETIONS, json.dumps(completion(stream=True)).encode(), JSON)
        head = await raw.head()
        headers = dict(head.headers)
        assert (head.status_code, headers[b"x-accel-buffering"]) == (200, b"no")
        pieces = raw.pieces()
        comments = [await anext(pieces) for _ in range(3)]
        assert b"".join(comments) == COMMENT * 3
        one.targets[0].resume()
        rest = b"".join([piece async for piece in pieces]).replace(COMMENT, b"")
        whole = await http.post(COMPLETIONS, completion())
        events = [json.loads(event.removeprefix(b"data: ")) for event in rest.split(b"\n\n")[:-2]]
        assert "".join(event["choices"][0]["text"] for event in events) == whole.json["choices"][0]["text"]
        assert rest.endswith(b"data: [DONE]\n\n")


async def test_a_target_that_refuses_is_told_by_a_status_though_a_stream_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "GRACE_S", 30.0)  # a busy machine may not ask the target within 0.2 s
    async with serving(tmp_path, attempts=1) as (one, http):
        one.targets[0].refuse = overloaded("full", 2.0)
        reply = await http.post(CHAT, chat(stream=True))
        assert (reply.status, reply.headers["retry-after"]) == (429, "2")


async def test_time_that_passes_in_a_silent_stream_is_its_last_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        await http.post(COMPLETIONS, completion())
        one.targets[0].stall()
        late = [event async for event in http.stream(CHAT, chat(), {"x-request-timeout": "1"})]
        assert [event["error"]["code"] for event in late] == ["deadline"]


async def test_what_a_caller_may_have_stands_in_the_headers(tmp_path: Path) -> None:
    async with serving(tmp_path, max_requests=3, max_queued_tokens=1000) as (one, http):
        first = await http.post(COMPLETIONS, completion(max_tokens=1))
        names = {name: first.headers[f"x-ratelimit-{name}"] for name in ("limit-requests", "limit-tokens")}
        assert names == {"limit-requests": "3", "limit-tokens": "1000"}
        assert (first.headers["x-ratelimit-remaining-requests"], first.headers["x-ratelimit-reset-requests"]) == (
            "2", "0s",
        )  # fmt: skip
        one.targets[0].hold()
        running = [asyncio.create_task(http.post(COMPLETIONS, completion(max_tokens=200))) for _ in range(3)]
        await until(lambda: value_of(one.app.metrics.gateway_inflight_requests) == 3)
        full = await http.post(COMPLETIONS, completion(max_tokens=1))
        assert full.status == 429
        assert full.headers["x-ratelimit-remaining-requests"] == "0"
        assert float(full.headers["x-ratelimit-reset-requests"].removesuffix("s")) > 0
        one.targets[0].go_on()
        await asyncio.gather(*running)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "identity", "GZIP"])
async def test_a_compressed_body_is_taken(tmp_path: Path, encoding: str) -> None:
    body = json.dumps(completion("héllo " * 500, max_tokens=4)).encode()
    packers = {"deflate": zlib.compress(body), "identity": body}
    packed = packers.get(encoding, gzip.compress(body))
    async with serving(tmp_path) as (_, http):
        plain = await http.post(COMPLETIONS, body)
        reply = await http.post(COMPLETIONS, packed, {"content-encoding": encoding})
        assert reply.status == plain.status == 200
        assert reply.json["choices"] == plain.json["choices"]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
async def test_another_compression_is_415(tmp_path: Path, encoding: str) -> None:
    async with serving(tmp_path) as (_, http):
        reply = await http.post(COMPLETIONS, completion(), {"content-encoding": encoding})
        assert (reply.status, reply.headers["accept-encoding"]) == (415, "gzip, deflate")


async def test_a_body_that_inflates_too_far_or_is_broken_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(completion()).encode())
    bomb = zlib.compressobj(9, wbits=31)
    packed = b"".join(bomb.compress(b" " * (1 << 20)) for _ in range(64)) + bomb.flush()
    assert len(packed) < MAX_CLIENT_MESSAGE_BYTES // 32
    async with serving(tmp_path) as (_, http):
        for body, status in ((packed, 413), (whole[:-5], 400), (whole + b"x", 400), (b"{}", 400), (b"", 400)):
            reply = await http.post(COMPLETIONS, body, {"content-encoding": "gzip"})
            assert reply.status == status, body[:20]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("thought", "answer", "inside"),
    [
        ("<think>\nI think 日本語.\n</think>", "\n\nYes, 日本.", True),
        ("<think>never closed", "", True),
        ("", "plain", False),
    ],
)
async def test_tokens_of_thoughts_are_told(
    tmp_path: Path, thought: str, answer: str, inside: bool, stream: bool
) -> None:
    tokenizer = build_tokenizer()
    first, second = (tokenizer.encode(text).ids for text in (thought, answer))
    script = (*first, *second)
    async with serving(tmp_path, [FakeTarget(script=script)]) as (one, http):
        over_grpc = await one.ask(ask_for("hello", max_tokens=len(script)))
        assert over_grpc.final is not None
        assert over_grpc.final.usage.reasoning_tokens == (len(first) if inside else 0)
        asked = chat(max_tokens=len(script))
        if stream:
            events = http.stream(CHAT, asked | {"stream_options": {"include_usage": True}})
            usage = [event async for event in events][-2]["usage"]
        else:
            usage = (await http.post(CHAT, asked)).json["usage"]
        found = usage["completion_tokens_details"]["reasoning_tokens"]
        assert found == (len(first) if inside else 0)
        assert usage["completion_tokens"] == len(script)
