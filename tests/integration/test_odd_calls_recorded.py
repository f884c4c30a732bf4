"""Lines, counters and spans say what clients were told by endpoints of other makers, probes, and calls that break off.

Targets die meanwhile: streams move, and no client hears of it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.trace import SpanKind
from prometheus_client import generate_latest

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Code
from tests.integration.gateway_stack import ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, completion
from tests.integration.test_calls_recorded import AT_ONCE, OF_STATUS, Crowd, recording, series, settled
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import connected

MESSAGES, RESPONSES, COUNT = "/v1/messages", "/v1/responses", "/v1/messages/count_tokens"
HEALTH = "/grpc.health.v1.Health"
ASKED = {"messages": [{"role": "user", "content": "x"}], "model": "fake", "max_tokens": 24}
BAD_CHUNK = b"zz\r\n{}\r\n"
STATUSES = OF_STATUS | {421: "PERMISSION_DENIED", 501: "INVALID_ARGUMENT"}


class OddCrowd(Crowd):
    """Clients of every kind that other tests of records do not have."""

    def kinds(self) -> list[Callable[[str], Awaitable[None]]]:
        return [
            self.responses, self.messages, self.count, self.strange_model, self.no_message, self.answers,
            self.strange_paths, self.methods, self.origin, self.probes, self.healthy, self.unhealthy, self.watch,
            self.keyless_probe, self.no_protobuf, self.cancelled, self.status, self.broken_upload, self.stalled_upload,
            self.bad_chunk, self.bad_chunk_refused, self.bad_chunk_unread, self.strange_host, self.two_at_once,
        ]  # fmt: skip

    async def _post(self, path: str, body: Any, tenant: str, endpoint: str = "") -> None:
        reply = await self.client(tenant).post(path, body)
        self._status(endpoint or path, reply.status, tenant)

    def _status(self, endpoint: str, status: int, tenant: str) -> None:
        self.told.end(endpoint, STATUSES.get(status, "OK"), tenant, status)

    async def responses(self, tenant: str) -> None:
        await self._post(RESPONSES, {"model": "fake", "input": "x", "max_output_tokens": 24}, tenant)

    async def messages(self, tenant: str) -> None:
        await self._post(MESSAGES, ASKED, tenant)

    async def count(self, tenant: str) -> None:
        await self._post(COUNT, {"model": "fake", "messages": ASKED["messages"]}, tenant)

    async def strange_model(self, tenant: str) -> None:
        await self._post(COUNT, {"model": "none of ours", "messages": ASKED["messages"]}, tenant)

    async def no_message(self, tenant: str) -> None:
        await self._post(MESSAGES, {"model": "fake"}, tenant)

    async def answers(self, tenant: str) -> None:
        await self._post(COMPLETIONS, completion("x", n=300), tenant)

    async def strange_paths(self, tenant: str) -> None:
        await self._post(f"/v1/{random.choice(('batches', 'messages/batches', 'files'))}", {}, tenant, "other")

    async def methods(self, tenant: str) -> None:
        self._status(MODELS, (await self.client(tenant).ask("BREW", MODELS)).status, tenant)

    async def origin(self, tenant: str) -> None:
        lines = b"origin: http://a.b\r\naccess-control-request-method: POST\r\n\r\n"
        await self._raw(MESSAGES, lines, "unknown", method="OPTIONS", key="")

    async def probes(self, tenant: str) -> None:
        self._status("/ping", (await self.client("nobody's").ask("HEAD", "/ping")).status, "unknown")

    async def _health(self, name: str, code: str, tenant: str, key: str) -> None:
        async with grpc.aio.insecure_channel(
            self.one.bound.grpc, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as own:
            check = health_pb2_grpc.HealthStub(own).Check
            try:
                await check(health_pb2.HealthCheckRequest(service=name), **self.key(key))
                found = "OK"
            except grpc.aio.AioRpcError as error:
                found = error.code().name
        assert found == code
        self.told.end(f"{HEALTH}/Check", found, tenant)

    async def healthy(self, tenant: str) -> None:
        await self._health("", "OK", tenant, tenant)

    async def unhealthy(self, tenant: str) -> None:
        """gRPC's own service ends it, and it is no error of ours that somebody is called for."""
        await self._health("no service", "NOT_FOUND", tenant, tenant)

    async def keyless_probe(self, tenant: str) -> None:
        await self._health("", "UNAUTHENTICATED", "unknown", "nobody's")

    async def watch(self, tenant: str) -> None:
        async with grpc.aio.insecure_channel(self.one.bound.grpc) as channel:
            watching = health_pb2_grpc.HealthStub(channel).Watch
            call = watching(health_pb2.HealthCheckRequest(), **self.key(tenant))
            await call.read()
            call.cancel()
        self.told.end(f"{HEALTH}/Watch", "CANCELLED", tenant)

    async def no_protobuf(self, tenant: str) -> None:
        async with grpc.aio.insecure_channel(self.one.bound.grpc) as channel:
            call: Any = channel.unary_unary("/paceline.v1.InferenceService/Tokenize")
            await self._rpc("Tokenize", call(b"\xff\xff", **self.key(tenant)), tenant)

    async def cancelled(self, tenant: str) -> None:
        call = self.one.stub.Generate(ask_for("x", max_tokens=3000), **self.key(tenant))
        await call.read()
        call.cancel()
        self.told.end("/paceline.v1.InferenceService/Generate", "CANCELLED", tenant)

    async def status(self, tenant: str) -> None:
        call = self.one.stub.GetStatus(inference_pb2.GetStatusRequest(), **self.key(tenant))
        await self._rpc("GetStatus", call, tenant)

    async def _raw(
        self, path: str, rest: bytes, tenant: str, method: str = "POST", key: str = "a", host: str = "localhost"
    ) -> None:
        """One request whose rest is written as it is; its answer's status is what its client was told."""
        async with connected(self.http) as http:
            head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
            head += f"authorization: Bearer {key}\r\n" if key else ""
            http.writer.write(head.encode() + rest)
            self._status(path, (await http.reply_to_raw()).status, tenant)

    async def bad_chunk(self, tenant: str) -> None:
        await self._raw(MESSAGES, b"transfer-encoding: chunked\r\n\r\n" + BAD_CHUNK, tenant, key=tenant)

    async def bad_chunk_refused(self, tenant: str) -> None:
        """The chunk's fault is told first: headers and chunk come as one."""
        await self._raw(RESPONSES, b"transfer-encoding: chunked\r\n\r\n" + BAD_CHUNK, "unknown", key="nobody's")

    async def bad_chunk_unread(self, tenant: str) -> None:
        rest = b"transfer-encoding: chunked\r\n\r\n" + BAD_CHUNK
        await self._raw(MODELS, rest, tenant, method="GET", key=tenant)

    async def strange_host(self, tenant: str) -> None:
        await self._raw(CHAT, b"content-length: 2\r\n\r\n{}", "unknown", host="attacker.example")

    async def _left(self, path: str, rest: bytes, tenant: str) -> None:
        """It goes once the gateway has begun to read its body: of one that goes before nobody knows."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {tenant}\r\nexpect: 100-continue\r\n"
        reader, writer = await asyncio.open_connection(*self.http.rsplit(":", 1))
        writer.write(head.encode() + b"content-type: application/json\r\n" + rest)
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        self.told.end(path, "CANCELLED", tenant)

    async def broken_upload(self, tenant: str) -> None:
        await self._left(CHAT, b"content-length: 5000\r\n\r\n", tenant)

    async def stalled_upload(self, tenant: str) -> None:
        await self._left(COUNT, b"transfer-encoding: chunked\r\n\r\n", tenant)

    async def two_at_once(self, tenant: str) -> None:
        one = f"GET {MODELS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {tenant}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection(*self.http.rsplit(":", 1))
        writer.write(one + one)
        heads = b""
        while heads.count(b"HTTP/1.1 200") < 2:
            heads += await reader.read(1 << 16)
        writer.close()
        self._status(MODELS, 200, tenant)
        self._status(MODELS, 200, tenant)


async def test_what_odd_clients_are_told_is_what_lines_counters_and_spans_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    rounds, draw = 80 if full else 3, random.Random(64)
    fakes = [FakeTarget(f"p{index}", 0.002, slots=AT_ONCE) for index in range(3)]
    async with recording(tmp_path, monkeypatch, fakes) as (one, client, lines, kept):
        crowd, places = OddCrowd(one, client), asyncio.Semaphore(AT_ONCE)
        work = [(kind, draw.choice("ab")) for kind in crowd.kinds() for _ in range(rounds)]
        draw.shuffle(work)

        async def ask(kind: Callable[[str], Awaitable[None]], tenant: str) -> None:
            async with places:
                await kind(tenant)

        calls = [asyncio.create_task(ask(*each)) for each in work]
        for number in range(4):
            await asyncio.sleep(0.1)
            await fakes[number % 3].die()
            await fakes[number % 3].start()
        await asyncio.gather(*calls)
        await settled(lines, crowd.told.ends.total())
        text = generate_latest(one.app._server._registry).decode()
    told = crowd.told
    assert Counter((line["endpoint"], line["code"]) for line in lines.lines) == told.ends
    assert series(text, "gateway_requests_total") == {(code, end): n for (end, code), n in told.ends.items()}
    assert Counter((line["tenant"], line["code"]) for line in lines.lines) == told.tenants
    assert Counter(line.get("status", 0) for line in lines.lines) == told.statuses
    spans = [span for span in kept.spans if span.kind is SpanKind.SERVER]
    assert len(spans) == told.ends.total()
    codes = Counter(str(dict(span.attributes or {}).get("rpc.grpc.status_code", "")) for span in spans)
    del codes[""]
    assert codes == Counter(
        str(Code[code].value) for (end, code), n in told.ends.items() if "." in end for _ in range(n)
    )
