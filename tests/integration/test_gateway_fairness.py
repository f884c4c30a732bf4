"""One tenant's long prompts do not hold up another tenant's."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Code, Reason
from services.gateway.prompts.tokenizer import Tokenizer
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for, harness, rich
from tests.integration.http_stack import COMPLETIONS, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.pace import kept, within_s

SENTENCE = "the quick brown fox jumps over the lazy dog. "
LONGEST_BYTES = 1 << 20
LONGEST = (SENTENCE * (LONGEST_BYTES // len(SENTENCE) + 1))[:LONGEST_BYTES]
TENANTS = f"""
[[tenant]]
name = "a"
key_sha256 = ["{digest("a")}"]
max_requests = 32

[[tenant]]
name = "b"
key_sha256 = ["{digest("b")}"]

[[tenant]]
name = "small"
key_sha256 = ["{digest("small")}"]
max_queued_tokens = 1000
"""


@pytest.fixture
def tenants(tmp_path: Path) -> str:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    return str(path)


def bearer(key: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {key}"),)}


def tokenize(one: Harness, text: str, key: str) -> Coroutine[Any, Any, Any]:
    request = inference_pb2.TokenizeRequest(prompt=inference_pb2.Prompt(text=text))

    async def call() -> Any:
        return await one.stub.Tokenize(request, timeout=WAIT_S, **bearer(key))

    return call()


async def first_token_s(one: Harness) -> float:
    """Time to the first token of tenant b's prompt of 3 KiB."""
    began = time.monotonic()
    async for _ in one.stub.Generate(ask_for(SENTENCE * 70, max_tokens=1), timeout=WAIT_S, **bearer("b")):
        return time.monotonic() - began
    raise AssertionError("no token")


@pytest.mark.parametrize("calls", [8, 32])
@pytest.mark.parametrize("context_limit", [4096, 1 << 22], ids=["that cannot fit", "that fit"])
async def test_texts_of_one_tenant_do_not_delay_anothers_prompt(
    tmp_path: Path, tenants: str, calls: int, context_limit: int
) -> None:
    settings: dict[str, Any] = {"tenants": tenants, "max_queued_tokens": 1 << 30, "drain_grace_s": 0.0}
    bound_s = within_s(2.0)
    async with harness(tmp_path, [FakeTarget(context_limit=context_limit)], **settings) as one:
        await first_token_s(one)
        tasks = [asyncio.create_task(tokenize(one, LONGEST, "a")) for _ in range(calls)]
        await asyncio.sleep(0.3)
        waited_s = await first_token_s(one)
        working = sum(not task.done() for task in tasks)
        if context_limit <= 4096:
            async with asyncio.timeout(WAIT_S):
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, grpc.aio.AioRpcError) for each in ended), "those that cannot fit are refused"
        else:
            assert working, "the others still work"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert kept(2.0, bound_s, waited_s)
    print(f"first token after {waited_s:.2f} s beside {calls} texts of 1 MiB")


async def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised(
    tmp_path: Path, tenants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness(tmp_path, tenants=tenants) as one:
        assert (await tokenize(one, "hello", "a")).tokens.ids
        monkeypatch.setattr(Tokenizer, "_encoded", lambda *_, **__: pytest.fail("it was tokenised"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await tokenize(one, LONGEST, "a")
        assert (rich(refused.value).code, rich(refused.value).reason) == (Code.INVALID_ARGUMENT, Reason.CONTEXT_LIMIT)
        assert rich(refused.value).field == "prompt"


async def test_tokenize_counts_as_generate_does(tmp_path: Path, tenants: str) -> None:
    """Beside a prompt that waits for its first token there is no room for another one, whoever asks what of it."""
    target = FakeTarget()
    async with harness(tmp_path, [target], tenants=tenants) as one:
        await tokenize(one, SENTENCE * 70, "small")
        target.stall()
        waiting = asyncio.create_task(one.ask(ask_for(SENTENCE * 70, max_tokens=1), **bearer("small")))
        await until(lambda: target.starts)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await tokenize(one, SENTENCE * 70, "small")
        assert rich(refused.value).reason is Reason.TENANT_LIMIT
        target.resume()
        await waiting
        await tokenize(one, SENTENCE * 70, "small")


@pytest.mark.parametrize("calls", [8, 32])
async def test_bodies_of_one_tenant_do_not_delay_anothers_prompt_over_either_listener(
    tmp_path: Path, tenants: str, calls: int
) -> None:
    settings: dict[str, Any] = {"tenants": tenants, "max_queued_tokens": 1 << 30, "drain_grace_s": 0.0}
    bound_s = within_s(2.0)
    async with serving(tmp_path, [FakeTarget(context_limit=1 << 22)], **settings) as (one, http):
        await first_token_s(one)
        large = completion(LONGEST, max_tokens=1)
        tasks = [asyncio.create_task(http.post(COMPLETIONS, large, key("a"))) for _ in range(calls)]
        await asyncio.sleep(0.3)
        began = time.monotonic()
        reply = await http.post(COMPLETIONS, completion(SENTENCE * 70, max_tokens=1), key("b"))
        over_http_s = time.monotonic() - began
        assert reply.status == 200
        over_grpc_s = await first_token_s(one)
        working = sum(not task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert working, "tenant a was still busy"
        assert kept(2.0, bound_s, max(over_http_s, over_grpc_s))


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}
