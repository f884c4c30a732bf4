"""How requests over HTTP end: names, times, keys, clients that go, targets that are missing, gateways that leave."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.request.errors import Code, PacelineError, Reason, invalid_field
from services.gateway.http.endpoints.openapi import written
from services.gateway.http.schema.errors import STATUS
from tests.integration.gateway_stack import ask_for, rich
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, chat, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import connected
from tests.support.metrics import value_of
from tests.support.ports import free_port

JSON = {"content-type": "application/json"}


async def test_the_id_of_a_request_comes_back_whatever_becomes_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        for body, status in ((chat(), 200), (chat(model="other"), 404), (b"{", 400)):
            reply = await http.post(CHAT, body, {"x-request-id": "mine-7"})
            assert (reply.status, reply.headers["x-request-id"]) == (status, "mine-7")
        assert len({(await http.get(MODELS)).headers["x-request-id"] for _ in range(3)}) == 3
        wrong = await http.post(CHAT, chat(), {"x-request-id": "x" * 129})
        assert (wrong.status, wrong.error["param"]) == (400, "X-Request-Id")


@pytest.mark.parametrize("stated", ["soon", "0", "-1", "nan", "inf", "1e10", "1_0", "."])
async def test_a_time_that_is_none_is_refused(tmp_path: Path, stated: str) -> None:
    async with serving(tmp_path) as (_, http):
        reply = await http.post(CHAT, chat(), {"x-request-timeout": stated})
        assert (reply.status, reply.error["param"]) == (400, "X-Request-Timeout")


async def test_time_that_passes_before_the_first_token_is_504_and_later_the_text_so_far(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.05, context_limit=1 << 16)]) as (one, http):
        endless = completion(max_tokens=50_000)
        for seconds in ("0.5", "5", "50"):  # one in which a first token comes here
            cut = await http.post(COMPLETIONS, endless, {"x-request-timeout": seconds})
            if cut.status == 200:
                break
        choice = cut.json["choices"][0]
        assert (cut.status, choice["finish_reason"]) == (200, "length")
        assert choice["paceline"]["finish_reason"] == "deadline" and choice["text"]
        one.targets[0].stall()
        late = await http.post(COMPLETIONS, endless, {"x-request-timeout": "0.3"})
        assert (late.status, late.error["code"]) == (504, "deadline")
        one.targets[0].resume()
        await until(lambda: not one.targets[0].active)


async def test_no_target_is_503(tmp_path: Path) -> None:
    async with serving(tmp_path, [], targets=("127.0.0.1:1",), wait_target_s=0.1) as (_, http):
        for reply in (await http.get(MODELS), await http.post(CHAT, chat())):
            assert (reply.status, reply.error["code"]) == (503, "no_target")
            assert int(reply.headers["retry-after"]) >= 1


async def test_a_key_runs_once_whichever_listener_it_comes_through(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        for choices in (1, 3):
            one.targets[0].hold(1)
            key = {"idempotency-key": f"k{choices}"}
            running = asyncio.create_task(http.post(COMPLETIONS, completion(n=choices, max_tokens=200), key))
            await until(lambda: one.targets[0].active)
            second = await http.post(COMPLETIONS, completion(), key)
            assert (second.status, second.error["code"]) == (409, "duplicate")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.ask(ask_for(idempotency_key=f"k{choices}"))
            assert rich(refused.value).reason is Reason.DUPLICATE
            one.targets[0].go_on()
            assert (await running).status == 200
        long = await http.post(COMPLETIONS, completion(), {"idempotency-key": "k" * 129})
        assert (long.status, long.error["param"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize("stream", [False, True])
async def test_one_disconnect_cancels_all_choices(tmp_path: Path, stream: bool) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.02, context_limit=1 << 16)]) as (one, http):
        async with connected(http.address) as raw:
            body = json.dumps(completion(n=4, max_tokens=50_000, stream=stream)).encode()
            await raw.send("POST", COMPLETIONS, body, JSON)
            await until(lambda: one.targets[0].active == 4)
        await until(lambda: not one.targets[0].active)
        assert len(one.targets[0].cancels) == 4
        assert value_of(one.app.metrics.gateway_inflight_requests) == 0


async def test_clients_that_go_at_any_moment_leave_nothing(tmp_path: Path, full: bool, seed: int) -> None:
    chance = random.Random(seed)
    async with serving(tmp_path, [FakeTarget(pace_s=0.002, context_limit=1 << 16, slots=64)]) as (one, http):
        assert (await http.post(COMPLETIONS, completion())).status == 200
        before = asyncio.all_tasks()

        async def go() -> None:
            asked = completion(n=chance.choice([1, 1, 3]), max_tokens=5000, stream=chance.random() < 0.7)
            body = json.dumps(asked).encode()
            sent = chance.randrange(len(body)) if chance.random() < 0.3 else len(body)
            async with connected(http.address) as raw:
                raw.begin(COMPLETIONS, body[:sent], JSON | {"content-length": str(len(body))})
                await asyncio.sleep(chance.random() * 0.1)

        for _ in range(50 if full else 5):
            await asyncio.gather(*(go() for _ in range(10)))
        await until(lambda: not one.targets[0].active)
        await until(lambda: value_of(one.app.metrics.gateway_inflight_requests) == 0)
        await until(lambda: asyncio.all_tasks() <= before)
        assert (await http.post(COMPLETIONS, completion())).status == 200


async def test_a_draining_gateway_finishes_what_runs_and_then_says_that_it_goes(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"drain_grace_s": 2.0, "propagation_s": 0.2, "http": f"127.0.0.1:{free_port()}"}
    async with serving(tmp_path, [FakeTarget(pace_s=0.02, context_limit=1 << 16)], **changes) as (one, http):
        short = asyncio.create_task(http.post(COMPLETIONS, completion(max_tokens=20)))
        long = asyncio.create_task(http.post(COMPLETIONS, completion(max_tokens=50_000)))
        streamed: list[object] = []

        async def stream() -> None:
            async for event in http.stream(COMPLETIONS, completion(max_tokens=50_000)):
                streamed.append(event)  # noqa: PERF401 - others look at it meanwhile

        streaming = asyncio.create_task(stream())
        await until(lambda: streamed and len(one.targets[0].starts) == 3)
        await one.app.drain()
        assert (await short).status == 200
        ended = await long
        assert (ended.status, ended.error["code"]) == (503, "draining")
        await streaming
        assert streamed[-1] == ended.json
        with pytest.raises(ConnectionError):
            await http.get(MODELS)


async def test_each_listener_can_be_off(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, _):
        assert one.bound.http and one.bound.grpc
    async with serving(tmp_path, grpc="", targets=("127.0.0.1:1",)) as (one, http):
        assert one.bound.as_dict()["grpc"] == ""
        assert (await http.get("/openapi.json")).status == 200


async def test_the_openapi_document_is_made_when_it_is_asked_for_and_once(tmp_path: Path) -> None:
    written.cache_clear()
    async with serving(tmp_path) as (_, http):
        assert written.cache_info().misses == 0, "a start does not make it"
        first, again = [await http.get("/openapi.json") for _ in range(2)]
        assert first.status == 200 and first.body == again.body
        assert written.cache_info().misses == 1


@pytest.mark.parametrize("wrong", [{"grpc": ""}, {"http": "nowhere"}, {"grpc": "", "http": "h:1", "vllm_engine": True}])
def test_settings_that_serve_nobody_are_refused(wrong: dict[str, object]) -> None:
    from services.gateway.settings import GatewaySettings

    with pytest.raises(PacelineError):
        GatewaySettings(tokenizer="x", targets=("a:1",), **wrong)  # type: ignore[arg-type]


def test_every_code_that_a_client_can_cause_has_a_status() -> None:
    assert set(Code) - set(STATUS) == {
        Code.OK,
        Code.CANCELLED,
        Code.UNKNOWN,
        Code.ABORTED,
        Code.INTERNAL,
        Code.DATA_LOSS,
    }
    assert invalid_field("a", "b").code in STATUS


@pytest.mark.parametrize("method", ["HEAD", "GET", "POST"])
async def test_what_is_no_http_is_refused_whatever_it_asks_for(tmp_path: Path, method: str) -> None:
    """An answer to HEAD has no body."""
    async with serving(tmp_path) as (_, http), connected(http.address) as raw:
        head = [f"{method} {MODELS} HTTP/1.1", "host: localhost", "content-length: 0", "transfer-encoding: chunked"]
        raw.writer.write("\r\n".join([*head, "", ""]).encode())
        answer = await asyncio.wait_for(raw.reader.read(), 30.0)
        status, _, body = answer.partition(b"\r\n\r\n")
        assert status.startswith(b"HTTP/1.1 400 ")
        assert bool(body) is (method != "HEAD")
