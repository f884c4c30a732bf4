"""A gateway over fake targets, all in the present event loop, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest import mock

import grpc

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2
from services.common.serving.channel import connect
from services.gateway.app import GatewayApp, GatewayBound
from services.gateway.settings import GatewaySettings
from services.gateway.targets import opening
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.kept_templates import kept_templates

WAIT_S = 120.0


@dataclass
class Answer:
    """What one stream gave."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    messages: int = 0
    final: inference_pb2.Final | None = None

    def take(self, response: inference_pb2.GenerateResponse) -> None:
        """Adds a message; positions must follow on one another."""
        self.messages += 1
        if response.HasField("final"):
            self.final = response.final
            return
        assert response.delta.position == len(self.tokens)
        self.tokens += response.delta.token_ids
        self.text += response.delta.text


@dataclass
class Harness:
    """The running parts."""

    app: GatewayApp
    bound: GatewayBound
    targets: list[FakeTarget]
    stub: inference_pb2_grpc.InferenceServiceAsyncStub

    async def ask(self, request: inference_pb2.GenerateRequest, **options: Any) -> Answer:
        """Reads a stream to its end, into `into` when given."""
        answer: Answer = options.pop("into", Answer())
        async for response in self.stub.Generate(request, timeout=options.pop("timeout", WAIT_S), **options):
            answer.take(response)
        return answer


def ask_for(text: str = "hello", max_tokens: int = 32, seed: int = 5, **fields: Any) -> inference_pb2.GenerateRequest:
    """A request."""
    return inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text=text),
        sampling=types_pb2.Sampling(seed=seed),
        stopping=fields.pop("stopping", types_pb2.Stopping(max_tokens=max_tokens)),
        **fields,
    )


@asynccontextmanager
async def harness(
    folder: Path,
    fakes: list[FakeTarget] | None = None,
    client: grpc.ChannelCredentials | None = None,
    client_options: tuple[tuple[str, int | str], ...] = (),
    **changes: Any,
) -> AsyncIterator[Harness]:
    """Starts targets and a gateway, and stops them; it waits as long for what a target says as the tests do."""
    fakes = [FakeTarget()] if fakes is None else fakes
    addresses = [await fake.start() for fake in fakes]
    fields: dict[str, Any] = {"targets": tuple(addresses), "propagation_s": 0.0, "drain_grace_s": 2.0} | changes
    if "models" not in fields:
        fields["tokenizer"] = str(write_tokenizer(folder))
    with mock.patch.object(opening, "DESCRIBE_S", WAIT_S):
        with kept_templates():
            app = GatewayApp(GatewaySettings(**fields))
            bound = await app.start()
        try:
            async with connect(bound.grpc, client, client_options) as channel:
                stub = inference_pb2_grpc.InferenceServiceStub(channel)
                yield Harness(app, bound, fakes, cast("inference_pb2_grpc.InferenceServiceAsyncStub", stub))
        finally:
            await app.drain()
            for fake in fakes:
                await fake.stop()


def rich(error: grpc.aio.AioRpcError) -> Any:
    """The error behind a status."""
    from grpc_status import rpc_status

    from services.common.request.error_convert import from_status

    return from_status(rpc_status.from_call(error))
