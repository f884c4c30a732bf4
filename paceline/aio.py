"""The client for asyncio; the synchronous one's twin."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Self, cast

import grpc

from paceline.answer import Answer, Piece, Reading
from paceline.channel import OPTIONS, REACH_S, Tls, metadata, unreachable
from paceline.client import ASK_S, DEADLINE_S
from paceline.errors import NoGatewayError, refused
from paceline.options import Options, Prompt, generate_request, prompt_to_pb
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2


class AsyncStream:
    """The pieces of one answer, as an asynchronous iterator; what came so far is in `answer`."""

    def __init__(self, call: Any, reading: Reading) -> None:
        """Made by AsyncClient.stream."""
        self._call = call
        self._reading = reading

    @property
    def answer(self) -> Answer:
        """The answer so far; whole when the iterator has ended."""
        return self._reading.answer

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        """The next piece.

        Raises:
            RefusedError: the gateway refused the call or could not finish it.
        """
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                piece = self._reading.take(message)
                if piece is not None:
                    return piece
        except grpc.RpcError as error:
            if not self.answer.finish:
                raise refused(error) from None
        except asyncio.CancelledError:
            # What was cancelled is this call, by `cancel`, or the task that reads it.
            if not self.answer.finish:
                self.cancel()
                raise
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Ends the answer where it is; its memory on the target is free within two rounds."""
        self._reading.cancel()
        self._call.cancel()


class AsyncClient:
    """Talks to the gateway at an address; an asynchronous context manager.

    Raises:
        NoGatewayError: from entering, when none answers within a second and a half.
    """

    def __init__(self, address: str, *, key: str = "", tls: Tls | None = None) -> None:
        """Connects to host:port or a gRPC name; `key` is a tenant's, without `tls` nothing is encrypted."""
        self._address = address
        self._metadata = metadata(key)
        if tls is None:
            self._channel = grpc.aio.insecure_channel(address, OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address, tls.credentials(), tls.options)
        self._stub = cast(
            "inference_pb2_grpc.InferenceServiceAsyncStub", inference_pb2_grpc.InferenceServiceStub(self._channel)
        )

    async def __aenter__(self) -> Self:
        try:
            await asyncio.wait_for(self._channel.channel_ready(), REACH_S)
        except TimeoutError:
            await self.close()
            raise NoGatewayError(unreachable(self._address)) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and every call on it."""
        await self._channel.close()

    def stream(self, prompt: Prompt, options: Options | None = None, *, deadline_s: float = DEADLINE_S) -> AsyncStream:
        """Begins an answer; `deadline_s` is the last resort, `Options.timeout_s` ends in good order."""
        request = generate_request(prompt, options or Options())
        reading = Reading(time.perf_counter)
        call = self._stub.Generate(request, timeout=deadline_s, wait_for_ready=True, metadata=self._metadata)
        return AsyncStream(call, reading)

    async def generate(
        self, prompt: Prompt, options: Options | None = None, *, deadline_s: float = DEADLINE_S
    ) -> Answer:
        """One whole answer.

        Raises:
            RefusedError: the gateway refused the call or could not finish it.
        """
        stream = self.stream(prompt, options, deadline_s=deadline_s)
        async for _ in stream:
            pass
        return stream.answer

    async def model(self) -> types_pb2.ModelInfo:
        """What is served, and every limit.

        Raises:
            RefusedError: the gateway refused the call, or no target has said yet what it serves.
        """
        response = await self._ask(self._stub.GetModel, inference_pb2.GetModelRequest())
        return cast("inference_pb2.GetModelResponse", response).model

    async def tokenize(self, prompt: Prompt, options: Options | None = None) -> list[int]:
        """The token ids of a prompt, as an answer would begin with them.

        Raises:
            RefusedError: the gateway refused the prompt.
        """
        request = inference_pb2.TokenizeRequest(prompt=prompt_to_pb(prompt, options or Options()))
        response = await self._ask(self._stub.Tokenize, request)
        return list(cast("inference_pb2.TokenizeResponse", response).tokens.ids)

    async def status(self) -> inference_pb2.GetStatusResponse:
        """How busy the pairs are.

        Raises:
            RefusedError: the gateway refused the call.
        """
        response = await self._ask(self._stub.GetStatus, inference_pb2.GetStatusRequest())
        return cast("inference_pb2.GetStatusResponse", response)

    async def _ask(self, method: Any, request: Any) -> object:
        try:
            return await method(request, timeout=ASK_S, wait_for_ready=True, metadata=self._metadata)
        except grpc.RpcError as error:
            raise refused(error) from None
