"""Who may call: API keys with default deny, tenants' limits and salts, TLS, mTLS and rotation."""

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Code, Reason
from services.common.serving.channel import connect
from services.common.serving.tls import TlsFiles, channel_credentials, server_credentials
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import WAIT_S, Answer, Harness, ask_for, harness, rich
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.pace import within_s
from tests.unit.common.serving.certificates import Authority

TENANTS = f"""
[[tenant]]
name = "one"
key_sha256 = ["{digest("key-one")}", "{digest("key-one-old")}"]
max_requests = 1

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


async def test_without_a_known_key_every_method_is_denied(tmp_path: Path, tenants: str) -> None:
    async with harness(tmp_path, tenants=tenants) as one, connect(one.bound.grpc) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for options in ({}, bearer("key-three"), bearer(""), {"metadata": (("authorization", "key-one"),)}):
            calls = (
                lambda o=options: one.ask(ask_for(), **o),
                lambda o=options: one.stub.GetModel(inference_pb2.GetModelRequest(), timeout=WAIT_S, **o),
                lambda o=options: health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S, **o),
            )
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as denied:
                    await call()
                assert rich(denied.value).code is Code.UNAUTHENTICATED
                assert rich(denied.value).reason is Reason.UNAUTHENTICATED
        assert not one.targets[0].starts
        assert (await one.ask(ask_for(), **bearer("key-one-old"))).final is not None
        async with connect(one.bound.health) as plain:
            probe: Any = health_pb2_grpc.HealthStub(plain)
            await probe.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)


async def test_tenants_have_their_own_salts_and_limits(tmp_path: Path, tenants: str) -> None:
    async with harness(tmp_path, tenants=tenants) as one:
        first = Answer()
        one.targets[0].hold(1)
        task = asyncio.create_task(one.ask(ask_for(max_tokens=500), into=first, **bearer("key-one")))
        await until(lambda: first.tokens)
        with pytest.raises(grpc.aio.AioRpcError) as limited:
            await one.ask(ask_for(), **bearer("key-one-old"))
        assert rich(limited.value).reason is Reason.TENANT_LIMIT
        assert rich(limited.value).retry_after_s > 0
        one.targets[0].go_on()
        await one.ask(ask_for(), **bearer("key-two"))
        await task
        starts = {start.tenant: start.tenant_salt for start in one.targets[0].starts}
        assert set(starts) == {"one", "two"}
        assert starts["one"] != starts["two"]


async def test_a_revoked_key_ends_within_five_seconds_and_a_new_one_begins(tmp_path: Path, tenants: str) -> None:
    """A stream that runs goes on to its end."""
    async with harness(tmp_path, tenants=tenants) as one:
        first = Answer()
        one.targets[0].hold(1)  # others ask for one token
        running = asyncio.create_task(one.ask(ask_for(max_tokens=1000), into=first, **bearer("key-one")))
        await until(lambda: first.tokens)
        Path(tenants).write_text(TENANTS.replace(digest("key-one"), digest("key-new")))
        async with asyncio.timeout(within_s(5.0)):
            while (code := await code_of(one, "key-one")) is not Code.UNAUTHENTICATED:
                assert code is Code.RESOURCE_EXHAUSTED, "its one place is taken"
                await asyncio.sleep(0.05)
        assert await code_of(one, "key-new") is Code.RESOURCE_EXHAUSTED
        assert await code_of(one, "key-two") is Code.OK
        one.targets[0].go_on()
        assert (await running).final is not None


async def code_of(one: Harness, key: str) -> Code:
    """How a request with a key ends."""
    try:
        await one.ask(ask_for(max_tokens=1), **bearer(key))
    except grpc.aio.AioRpcError as error:
        return Code(rich(error).code)
    return Code.OK


async def test_a_priority_above_the_tenants_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS + "max_priority = 5\n")
    async with harness(tmp_path, tenants=str(path)) as one:
        for key, priority, highest in (("key-one", 1, 0), ("key-two", 6, 5)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.ask(ask_for(priority=priority), **bearer(key))
            assert (rich(refused.value).code, rich(refused.value).field) == (Code.INVALID_ARGUMENT, "priority")
            assert rich(refused.value).message == f"priority: {priority} is not in [-100, {highest}]"
            told = await one.stub.GetModel(inference_pb2.GetModelRequest(), timeout=WAIT_S, **bearer(key))
            assert told.model.limits["max_priority"] == highest
            await one.ask(ask_for(priority=highest), **bearer(key))
        assert [start.priority for start in one.targets[0].starts] == [0, 5]
    async with harness(tmp_path) as open_to_all:
        await open_to_all.ask(ask_for(priority=100))


@pytest.mark.parametrize(("settings", "told"), [({}, False), ({"report_cached_tokens": True}, True)])
async def test_without_tenants_nobody_learns_what_others_asked(
    tmp_path: Path, settings: dict[str, Any], told: bool
) -> None:
    """All share one prefix cache then; an operator may ask for the count nevertheless."""
    async with harness(tmp_path, **settings) as one:
        final = (await one.ask(ask_for())).final
        assert final is not None
        assert final.usage.cached_tokens == (final.usage.prompt_tokens - 1 if told else 0)


async def test_a_tenant_is_told_of_its_own_prefix_hits(tmp_path: Path, tenants: str) -> None:
    async with harness(tmp_path, tenants=tenants) as one:
        final = (await one.ask(ask_for(), **bearer("key-one"))).final
        assert final is not None
        assert final.usage.cached_tokens == final.usage.prompt_tokens - 1 > 0


async def test_mtls_towards_clients_with_rotation(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "gateway", "gateway")
    mine = channel_credentials(TlsFiles(*authority.issue(tmp_path / "client", "client"), ca))
    async with harness(tmp_path, client=mine, tls_cert=cert, tls_key=key, tls_ca=ca) as one:
        assert (await one.ask(ask_for())).final is not None
        async with connect(one.bound.grpc, channel_credentials(TlsFiles(ca=ca))) as nameless:
            method: Any = nameless.unary_unary("/paceline.v1.InferenceService/GetModel")
            with pytest.raises(grpc.aio.AioRpcError) as denied:
                await method(b"", timeout=WAIT_S)
            assert denied.value.code() is grpc.StatusCode.UNAVAILABLE
        authority.issue(tmp_path / "gateway", "gateway again")
        os.utime(cert, ns=(0, 0))
        async with connect(one.bound.grpc, mine) as again:
            method = again.unary_unary("/paceline.v1.InferenceService/GetModel")
            assert await method(b"", timeout=WAIT_S)
        assert (await one.ask(ask_for())).final is not None


async def test_mtls_towards_targets(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    target = FakeTarget()
    theirs = TlsFiles(*authority.issue(tmp_path / "target", "target"), ca)
    address = await target.start(server_credentials(theirs))
    cert, key = authority.issue(tmp_path / "gateway", "gateway")
    settings: dict[str, Any] = {"target_tls_cert": cert, "target_tls_key": key, "target_tls_ca": ca}
    async with harness(tmp_path, [], targets=(address,), **settings) as one:
        assert (await one.ask(ask_for())).final is not None
    await target.stop()
