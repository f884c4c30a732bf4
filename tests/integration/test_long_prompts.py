"""A prompt is as long as the served context allows, and more is told in tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.support.fakes_target import FakeTarget

BYTES = 2_000_000
TEXT = ("the quick brown fox jumps over the lazy dog. " * (BYTES // 45 + 1))[:BYTES]
KINDS: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, completion(TEXT, max_tokens=1)),
    (CHAT, chat(TEXT, max_tokens=1)),
]


@pytest.mark.parametrize(("path", "body"), KINDS, ids=["completion", "chat"])
async def test_two_megabytes_are_served_where_they_fit(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(context_limit=1 << 21)]) as (_, http):
        reply = await http.post(path, body)
        assert reply.status == 200, reply.json
        assert 100_000 < reply.json["usage"]["prompt_tokens"] < BYTES


@pytest.mark.parametrize(("path", "body"), KINDS, ids=["completion", "chat"])
async def test_they_are_refused_by_the_context_where_not(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(context_limit=4096)]) as (_, http):
        reply = await http.post(path, body)
        assert reply.status == 400
        assert reply.json["error"]["code"] == "context_length_exceeded", json.dumps(reply.json)[:500]
        assert "4096" in reply.json["error"]["message"]
