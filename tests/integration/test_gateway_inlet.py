"""Calls are refused and counted at their headers; messages under way are bounded in number and in time."""

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Code, Reason
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES, MAX_HEADER_BYTES, connect
from services.gateway.intake import inlet
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for, harness, rich
from tests.support.hostile_messages import places

SERVICE = "/paceline.v1.InferenceService/"
TENANTS = f"""
[[tenant]]
name = "one"
key_sha256 = ["{digest("key-one")}"]
max_requests = 2

[[tenant]]
name = "two"
key_sha256 = ["{digest("key-two")}"]
"""


def bearer(key: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {key}"),)}


@pytest.fixture
def tenants(tmp_path: Path) -> str:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    return str(path)


class Raw:
    """A channel whose calls send bytes, or nothing."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def begin(self, name: str, **options: Any) -> Any:
        """A call that has sent its headers only."""
        return self._channel.stream_stream(SERVICE + name)(**options)


async def end_of(call: Any) -> Any:
    """How a call ended."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async with asyncio.timeout(WAIT_S):
            if await call.read() is grpc.aio.EOF:
                raise grpc.aio.AioRpcError(
                    await call.code(),
                    await call.initial_metadata(),
                    await call.trailing_metadata(),
                    await call.details(),
                )
    return ended.value


@pytest.mark.parametrize("name", ["Generate", "Tokenize", "GetModel"])
async def test_a_call_without_a_key_is_refused_before_its_message(tmp_path: Path, tenants: str, name: str) -> None:
    async with harness(tmp_path, tenants=tenants) as one, connect(one.bound.grpc) as channel:
        refusal = rich(await end_of(Raw(channel).begin(name)))
        assert (refusal.code, refusal.reason) == (Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED)


async def test_calls_without_messages_count_and_count_no_more_when_reset(tmp_path: Path, tenants: str) -> None:
    async with harness(tmp_path, tenants=tenants) as one, connect(one.bound.grpc) as channel:
        held = [Raw(channel).begin(name, **bearer("key-one")) for name in ("Generate", "Tokenize")]
        await asyncio.gather(*(call.wait_for_connection() for call in held))
        await until_refused(one)
        assert (await one.ask(ask_for(), **bearer("key-two"))).final is not None
        for call in held:
            call.cancel()
        async with asyncio.timeout(WAIT_S):
            while not await answered(one):
                await asyncio.sleep(0.01)


async def answered(one: Harness) -> bool:
    """Whether the first tenant has a place free."""
    try:
        await one.ask(ask_for(max_tokens=1), **bearer("key-one"))
    except grpc.aio.AioRpcError as error:
        assert rich(error).reason is Reason.TENANT_LIMIT
        return False
    return True


async def until_refused(one: Harness) -> None:
    async with asyncio.timeout(WAIT_S):
        while await answered(one):
            await asyncio.sleep(0.01)


async def test_messages_that_do_not_come_make_room_for_those_that_do(
    tmp_path: Path, tenants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same tenant; others do not notice them at all, which a machine of other work shows by three seconds."""
    monkeypatch.setattr(inlet, "HURRY_S", 3.0)
    async with harness(tmp_path, tenants=tenants) as one, connect(one.bound.grpc) as channel:
        held = [Raw(channel).begin("GetModel", **bearer("key-one")) for _ in range(inlet.PLACES)]
        await asyncio.gather(*(call.wait_for_connection() for call in held))
        request = inference_pb2.GetModelRequest()
        began = time.monotonic()
        await one.stub.GetModel(request, timeout=WAIT_S, **bearer("key-two"))
        other_s = time.monotonic() - began
        assert (await one.stub.GetModel(request, timeout=WAIT_S, **bearer("key-one"))).model.name == "fake"
        own_s = time.monotonic() - began
        assert other_s < inlet.HURRY_S <= own_s < inlet.HURRY_S + 7.0 < inlet.PATIENCE_S
        assert {rich(await end_of(call)).reason for call in held} == {Reason.DEADLINE}


async def test_a_call_that_sends_no_message_or_a_broken_one_is_the_clients_fault(tmp_path: Path) -> None:
    async with harness(tmp_path) as one, connect(one.bound.grpc) as channel:
        for name in ("Generate", "Tokenize", "GetModel"):
            for messages in ((), (b"\xff\xff\xff",)):
                call = Raw(channel).begin(name)
                for message in messages:
                    await call.write(message)
                await call.done_writing()
                refusal = rich(await end_of(call))
                assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, Reason.MALFORMED)


async def test_a_message_over_the_limit_is_refused_and_one_below_is_read(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await one.ask(ask_for("x" * MAX_CLIENT_MESSAGE_BYTES))
        assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as long:
            await one.ask(ask_for("x" * (MAX_CLIENT_MESSAGE_BYTES - 100)))
        assert rich(long.value).reason is Reason.CONTEXT_LIMIT
        assert (await one.ask(ask_for())).final is not None


async def test_health_and_reflection_are_served_beside(tmp_path: Path) -> None:
    async with harness(tmp_path) as one, connect(one.bound.grpc) as channel:
        await one.ask(ask_for(max_tokens=1))
        health: Any = health_pb2_grpc.HealthStub(channel)
        checked = await health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        watched = await health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S).read()
        assert checked.status == watched.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")] * 2
        answers = [answer async for answer in reflection.ServerReflectionInfo(iter(asked), timeout=WAIT_S)]
        for answer in answers:
            names = {service.name for service in answer.list_services_response.service}
            assert "paceline.v1.InferenceService" in names
        assert len(answers) == 2


async def test_a_compressed_message_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    async with harness(tmp_path) as one, connect(one.bound.grpc) as channel:
        for size in (10, MAX_CLIENT_MESSAGE_BYTES * 2):
            call: Any = channel.unary_unary(SERVICE + "GetModel")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"\x7a" + bytes(size), compression=grpc.Compression.Gzip)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (await one.ask(ask_for())).final is not None


async def test_headers_up_to_a_size_are_always_taken_and_larger_ones_never(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        request = inference_pb2.GetModelRequest()
        for _ in range(40):
            for size in (10_000, MAX_HEADER_BYTES - 1000):
                await one.stub.GetModel(request, timeout=WAIT_S, metadata=(("x-note", "a" * size),))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.stub.GetModel(request, timeout=WAIT_S, metadata=(("x-note", "a" * MAX_HEADER_BYTES),))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_of_too_many_fields_is_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    async with harness(tmp_path) as one, connect(one.bound.grpc) as channel:
        chats = places(inference_pb2.TokenizeRequest.DESCRIPTOR)
        place = next(each for each in chats if each.name == "prompt.chat.messages.tool_calls")
        call: Any = channel.unary_unary(SERVICE + "Tokenize")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(place.filled_to(1 << 20), timeout=WAIT_S)
        refusal = rich(refused.value)
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, Reason.MALFORMED)
        assert "prompt.chat.messages.tool_calls: more than" in refusal.message
