"""Clients of a release: many streams at a time, some cancelled, with what each received."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from paceline.channel import SERVICE_CONFIG
from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2
from services.common.serving.channel import connect

STREAM_S = 120.0
PROMPTS = ("def add(a, b):\n", "import os\n", "class Reader:\n    def ", "for index in range(", "return [x for x in ")


@dataclass
class Received:
    """What clients received; statuses by name, finals of streams that ended well.

    unsure are the tokens of the last message of cancelled streams, counted unless the cancel was faster.
    """

    tokens: int = 0
    unsure: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    finals: list[inference_pb2.Final] = field(default_factory=list)

    def ended(self, status: str) -> None:
        """Counts the end of a stream."""
        self.statuses[status] = self.statuses.get(status, 0) + 1


@asynccontextmanager
async def clients(addresses: Sequence[str]) -> AsyncIterator[inference_pb2_grpc.InferenceServiceAsyncStub]:
    """A stub over all gateways with the shipped service config."""
    target = "ipv4:" + ",".join(addresses)
    async with connect(target, options=[("grpc.service_config", SERVICE_CONFIG)]) as channel:
        yield inference_pb2_grpc.InferenceServiceStub(channel)  # type: ignore[misc]


def request(chance: random.Random, tokens: int) -> inference_pb2.GenerateRequest:
    """A request with a prompt, a temperature and a seed by chance."""
    return inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text=chance.choice(PROMPTS) * chance.randint(1, 3)),
        sampling=types_pb2.Sampling(temperature=chance.choice((0.0, 0.8)), seed=chance.getrandbits(32)),
        stopping=types_pb2.Stopping(max_tokens=chance.randint(tokens // 2, tokens), ignore_eos=True),
    )


async def ask(
    stub: inference_pb2_grpc.InferenceServiceAsyncStub,
    asked: inference_pb2.GenerateRequest,
    received: Received,
    cancel_at: int = 0,
) -> None:
    """Reads one stream to its end; with cancel_at cancels it after so many tokens."""
    call = stub.Generate(asked, timeout=STREAM_S)
    tokens = latest = 0
    try:
        async for message in call:
            latest = len(message.delta.token_ids)
            tokens += latest
            received.tokens += latest
            if message.HasField("final"):
                received.finals.append(message.final)
            if cancel_at and tokens >= cancel_at:
                call.cancel()
    except grpc.RpcError as error:
        received.ended(error.code().name)
    except asyncio.CancelledError:
        if not call.cancelled():
            raise
        received.ended("CANCELLED")
        received.unsure += latest
    else:
        received.ended("OK")


async def drive(
    addresses: Sequence[str],
    count: int,
    *,
    seed: int,
    tokens: int = 24,
    at_once: int = 12,
    cancel_every: int = 0,
    on: dict[int, Callable[[], object]] | None = None,
) -> Received:
    """Runs count streams, at_once at a time; calls on[n] in a thread when stream n begins."""
    received, chance, places = Received(), random.Random(seed), asyncio.Semaphore(at_once)
    async with clients(addresses) as stub, asyncio.TaskGroup() as group:

        async def one(asked: inference_pb2.GenerateRequest, cancel_at: int) -> None:
            try:
                await ask(stub, asked, received, cancel_at)
            finally:
                places.release()

        for number in range(count):
            await places.acquire()
            if on and number in on:
                await asyncio.to_thread(on[number])
            cancel_at = 3 if cancel_every and number % cancel_every == 0 else 0
            group.create_task(one(request(chance, tokens), cancel_at))
    return received


async def drive_until(
    addresses: Sequence[str], done: asyncio.Event, *, seed: int, tokens: int = 24, at_once: int = 4
) -> Received:
    """Keeps at_once streams running until done is set."""
    received, chance = Received(), random.Random(seed)

    async def keep(stub: inference_pb2_grpc.InferenceServiceAsyncStub) -> None:
        while not done.is_set():
            await ask(stub, request(chance, tokens), received)

    async with clients(addresses) as stub:
        await asyncio.gather(*(keep(stub) for _ in range(at_once)))
    return received
