"""A body that is refused is freed when its client was told, without a run of the collector."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.http_stack import CHAT, COMPLETIONS, serving
from tests.support.http_client import WAIT_S, Client

BODY_BYTES = 1 << 20
TIMES = 8

REFUSED = {
    "too many objects": (COMPLETIONS, b'{"model":"fake","prompt":[', b"{},", b"{}]}"),
    "no JSON": (COMPLETIONS, b'{"model":"fake","prompt":"', b"a", b""),
    "a wrong type": (CHAT, b'{"model":"fake","messages":[{"role":"user","content":"', b"a", b'","name":1}]}'),
    "an unknown field": (CHAT, b'{"model":"fake","messages":[],"', b"a", b'":1}'),
    "no field that is served": (
        "/v1/messages",
        b'{"model":"fake","messages":[{"role":"user","content":"',
        b"a",
        b'"}]}',
    ),
    "a prompt that is too long": ("/tokenize", b'{"model":"fake","prompt":"', b"a", b'"}'),
}


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing that is held by a cycle is freed while the block runs."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


async def ask(http: Client, path: str, body: bytes) -> int:
    return (await http.post(path, body)).status


@pytest.mark.parametrize("name", REFUSED)
async def test_what_was_refused_is_freed_at_once(tmp_path: Path, name: str) -> None:
    path, first, piece, last = REFUSED[name]
    body = first + piece * ((BODY_BYTES - len(first) - len(last)) // len(piece)) + last
    async with serving(tmp_path) as (_, http):
        await ask(http, path, body)
        with uncollected():
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(TIMES):
                assert await ask(http, path, body) >= 400
            async with asyncio.timeout(WAIT_S):  # the last one goes a moment after its answer
                while tracemalloc.get_traced_memory()[0] - before >= BODY_BYTES:
                    await asyncio.sleep(0.05)
