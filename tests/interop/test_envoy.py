"""Envoy in front of two gateways over mutual TLS: streams, typed errors, deadlines, cancellation, retries."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.request.errors import Reason
from services.common.serving.channel import connect
from services.common.serving.tls import TlsFiles, channel_credentials
from tests.integration.gateway_stack import WAIT_S, Answer, Harness, ask_for, harness, rich
from tests.integration.test_gateway_stream import until
from tests.interop.envoy import envoy
from tests.support.fakes_target import FakeTarget
from tests.support.metrics import value_of
from tests.unit.common.serving.certificates import Authority


@dataclass(frozen=True)
class Front:
    """Gateways, and a client that reaches them through Envoy."""

    gateways: tuple[Harness, Harness]
    client: Harness
    target: FakeTarget


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    authority, target = Authority.make(), FakeTarget(pace_s=0.01)
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "gateway", "gateway")
    files = TlsFiles(*authority.issue(tmp_path / "envoy", "envoy"), ca)
    mine = channel_credentials(files)
    tls: dict[str, Any] = {"tls_cert": cert, "tls_key": key, "tls_ca": ca, "max_requests": 1}
    shared: dict[str, Any] = {"targets": (await target.start(),), **tls}
    async with harness(tmp_path / "a", [], mine, **shared) as one, harness(tmp_path / "b", [], mine, **shared) as two:
        await until(lambda: one.app.ready and two.app.ready)
        addresses = [one.bound.grpc, two.bound.grpc]
        async with envoy(tmp_path, addresses, files) as address, connect(address) as channel:
            stub = cast(
                "inference_pb2_grpc.InferenceServiceAsyncStub", inference_pb2_grpc.InferenceServiceStub(channel)
            )
            yield Front((one, two), Harness(one.app, one.bound, [target], stub), target)
    await target.stop()


async def test_streams_errors_deadlines_and_cancellation_pass_through(front: Front) -> None:
    answer = await front.client.ask(ask_for(max_tokens=60))
    assert len(answer.tokens) == 60
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await front.client.ask(ask_for(logprobs=21))
    assert (rich(refused.value).reason, rich(refused.value).field) == (Reason.INVALID_FIELD, "logprobs")
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await front.client.ask(ask_for(max_tokens=4000), timeout=1.0)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert front.target.starts[-1].timeout.ToMilliseconds() < 2000
    await until(lambda: not front.target.active)
    call = front.client.stub.Generate(ask_for(max_tokens=4000), timeout=WAIT_S)
    async for _ in call:
        break
    call.cancel()
    await until(lambda: not front.target.active)
    assert front.target.cancels


async def test_a_full_gateways_refusal_is_retried_on_the_other(front: Front) -> None:
    into = Answer()
    long = asyncio.create_task(front.client.ask(ask_for(max_tokens=1500), into=into))
    await until(lambda: into.tokens)
    for seed in range(6):
        assert len((await front.client.ask(ask_for(max_tokens=8, seed=seed))).tokens) == 8
    assert sum(value_of(one.app.metrics.gateway_rejects["OVERLOADED"]) for one in front.gateways) > 0
    assert len((await long).tokens) == 1500
