"""What gateway, target and controller of the last release said to one another, as bytes, and their own contract.

Recorded at commit 3a06117 with the embedded pair: a greedy request, a sampled one with log-probabilities, and one
that was cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

RESOURCES = Path(__file__).parent / "resources"
RECORD = json.loads((RESOURCES / "wire-3a06117.json").read_text())
SESSION = "/paceline.v1.TargetService/Session"
WATCH = "/paceline.v1.FleetService/Watch"


def _contract() -> descriptor_pool.DescriptorPool:
    files = descriptor_pb2.FileDescriptorSet.FromString((RESOURCES / "wire-3a06117.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


CONTRACT = _contract()


def old(name: str) -> type[Any]:
    """The class of a message as the last release knows it."""
    return message_factory.GetMessageClass(CONTRACT.FindMessageTypeByName(f"paceline.v1.{name}"))


def sent(call: str, direction: str) -> list[bytes]:
    """Messages of session, watch or describe, "to" or "from" the worker, in their order."""
    return [base64.b64decode(each) for each in RECORD[call][direction]]


def updates() -> dict[str, list[Any]]:
    """What the old target said of each request."""
    found: dict[str, list[Any]] = {}
    for frame in map(old("SessionResponse").FromString, sent("session", "from")):
        for update in frame.round.updates:
            found.setdefault(update.request_id, []).append(update)
    return found


class OldWorker(grpc.GenericRpcHandler):
    """Controller and target of the last release: every request is answered with what its first one got."""

    def __init__(self) -> None:
        self.address = ""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Raw bytes both ways."""
        if handler_call_details.method == WATCH:
            return grpc.unary_stream_rpc_method_handler(self._watch)
        if handler_call_details.method == SESSION:
            return grpc.stream_stream_rpc_method_handler(self._session)
        return None

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        last = old("WatchResponse").FromString(sent("watch", "from")[-1])
        last.pairs[0].target_address = self.address
        yield last.SerializeToString()
        await asyncio.Event().wait()

    async def _session(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        answers = updates()
        first = next(iter(answers.values()))
        async for frame in requests:
            request = old("SessionRequest").FromString(frame)
            if request.HasField("hello"):
                yield sent("session", "from")[0]
            if request.HasField("start"):
                for number, update in enumerate(first):
                    again = old("SessionResponse")()
                    again.round.number = number + 1
                    again.round.updates.add().CopyFrom(update)
                    again.round.updates[0].request_id = request.start.request_id
                    yield again.SerializeToString()


@asynccontextmanager
async def old_worker() -> AsyncIterator[str]:
    """The address of an OldWorker."""
    server, worker = grpc.aio.server(), OldWorker()
    server.add_generic_rpc_handlers((worker,))
    worker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield worker.address
    finally:
        await server.stop(0.0)
