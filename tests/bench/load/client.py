"""An asynchronous client that times every delta of a generation."""

import asyncio
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import grpc

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2
from tests.bench.load.records import Record

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    token_ids: tuple[int, ...]
    tokens: int
    seed: int = 1
    temperature: float = 0.0
    speculate: bool = True


class LoadClient:
    """Talks to one gateway; an asynchronous context manager."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        stub = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._stub = cast("inference_pb2_grpc.InferenceServiceAsyncStub", stub)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def model(self, timeout_s: float = 180.0) -> types_pb2.ModelInfo:
        """The served model; waits until a target is ready behind the gateway.

        Raises:
            grpc.aio.AioRpcError: None was within the time.
        """
        end = perf_counter() + timeout_s
        while True:
            try:
                request = inference_pb2.GetModelRequest()
                answer = await self._stub.GetModel(request, timeout=timeout_s, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or perf_counter() > end:
                    raise
                await asyncio.sleep(0.5)
            else:
                return answer.model

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of a text."""
        prompt = inference_pb2.Prompt(text=text)
        answer = await self._stub.Tokenize(inference_pb2.TokenizeRequest(prompt=prompt), timeout=60)
        return tuple(answer.tokens.ids)

    async def run(self, ask: Ask) -> Record:
        """Runs one request to its end; an error ends up in the record."""
        request = inference_pb2.GenerateRequest(
            prompt=inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=ask.token_ids)),
            sampling=types_pb2.Sampling(temperature=ask.temperature, seed=ask.seed),
            stopping=types_pb2.Stopping(max_tokens=ask.tokens, ignore_eos=True),
            speculation=types_pb2.Speculation(off=not ask.speculate),
        )
        record = Record(perf_counter())
        try:
            async for message in self._stub.Generate(request, timeout=300):
                now = perf_counter()
                if message.HasField("delta") and message.delta.token_ids:
                    record.arrivals.append((now, len(message.delta.token_ids)))
                    record.token_ids.extend(message.delta.token_ids)
                elif message.HasField("final"):
                    _note(record, message.final)
        except grpc.aio.AioRpcError as error:
            record.error = f"{error.code().name}: {error.details()}"
        record.ended = perf_counter()
        return record


def _note(record: Record, final: inference_pb2.Final) -> None:
    usage, speculation = final.usage, final.speculation
    record.prompt_tokens, record.cached_tokens = usage.prompt_tokens, usage.cached_tokens
    record.queue_s, record.prefill_s = _seconds(usage.queue_time), _seconds(usage.prefill_time)
    record.decode_s = _seconds(usage.decode_time)
    record.rounds, record.accepted = speculation.rounds, speculation.accepted
    record.rounds_by_width = dict(speculation.rounds_by_width)


def _seconds(duration: "Duration") -> float:
    return duration.seconds + duration.nanos / 1e9
