"""The client for asyncio; the synchronous one's twin."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, Unpack, cast

import grpc

from paceline import served
from paceline.answer import Answer, Piece, Reading
from paceline.channel import REACH_S, Tls, channel_options, checked, metadata, secured, unreachable
from paceline.client import ASK_S, DEADLINE_S, failed
from paceline.errors import NoGatewayError
from paceline.options import Keywords, Options, Prompt, chosen
from paceline.request import generate_request, prompt_to_pb
from paceline.v1 import inference_pb2, inference_pb2_grpc


class AsyncStream:
    """The pieces of one answer, as an asynchronous iterator; what came so far is in `answer`."""

    def __init__(self, call: Any, reading: Reading, address: str, reach: Callable[[], Awaitable[None]]) -> None:
        """Made by AsyncClient.stream; `reach` waits until a gateway has taken the connection."""
        self._call = call
        self._reading = reading
        self._address = address
        self._reach = reach

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
            NoGatewayError: none answers, or it went away before the answer began.
        """
        try:
            if not self.answer.request_id:
                await self._reach()
            while (message := await self._call.read()) is not grpc.aio.EOF:
                piece = self._reading.take(message)
                if piece is not None:
                    return piece
        except grpc.RpcError as error:
            if not self.answer.finish:
                raise failed(error, self._address, bool(self.answer.request_id)) from None
        except NoGatewayError:
            if not self.answer.finish:
                self._call.cancel()
                raise
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
    """Talks to the gateway at an address.

    An asynchronous context manager: entering looks for the gateway, leaving closes. Without `async with`, call `close`
    at the end.

    Raises:
        NoGatewayError: from entering and from every call, when none answers within a second and a half.
    """

    def __init__(self, address: str, *, key: str = "", tls: Tls | None = None) -> None:
        """Takes host:port or a gRPC name; `key` is a tenant's, without `tls` nothing is encrypted.

        Raises:
            InvalidValueError: address, key or tls is none; the message says what to give.
            OSError: a file of `tls` cannot be read.
        """
        self._address = checked(address)
        self._metadata = metadata(key)
        if tls is None:
            self._channel = grpc.aio.insecure_channel(address, channel_options(address))
        else:
            self._channel = grpc.aio.secure_channel(address, secured(tls), channel_options(address, tls))
        self._stub = cast(
            "inference_pb2_grpc.InferenceServiceAsyncStub", inference_pb2_grpc.InferenceServiceStub(self._channel)
        )

    async def __aenter__(self) -> Self:
        try:
            await self._reach()
        except NoGatewayError:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and every call on it."""
        await self._channel.close()

    def stream(
        self,
        prompt: Prompt,
        options: Options | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        **keywords: Unpack[Keywords],
    ) -> AsyncStream:
        """Begins an answer; keywords are fields of Options and count before `options`.

        `deadline_s` is the last resort, `timeout_s` ends in good order. That none answers is told by the first piece.

        Raises:
            TypeError, InvalidValueError: a value does not fit its field; the message begins with its name.
        """
        request = generate_request(prompt, chosen(options, **keywords))
        reading = Reading(time.perf_counter)
        call = self._stub.Generate(request, timeout=deadline_s, metadata=self._metadata)
        return AsyncStream(call, reading, self._address, self._reach)

    async def generate(
        self,
        prompt: Prompt,
        options: Options | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        **keywords: Unpack[Keywords],
    ) -> Answer:
        """One whole answer, asked for as with `stream`.

        Raises:
            RefusedError: the gateway refused the call or could not finish it.
            NoGatewayError: none answers.
        """
        stream = self.stream(prompt, options, deadline_s=deadline_s, **keywords)
        async for _ in stream:
            pass
        return stream.answer

    async def model(self, name: str = "") -> served.Model:
        """A model by its name or an alias, and every limit; without a name the only one.

        Raises:
            RefusedError: the gateway refused the call, or no target has said yet what it serves.
            NoGatewayError: none answers.
        """
        response = await self._ask(self._stub.GetModel, inference_pb2.GetModelRequest(model=name))
        return served.model(cast("inference_pb2.GetModelResponse", response).model)

    async def models(self) -> list[served.Model]:
        """Every model that is served, each with its limits.

        Raises:
            RefusedError: the gateway refused the call, or no target has said yet what it serves.
            NoGatewayError: none answers.
        """
        response = await self._ask(self._stub.ListModels, inference_pb2.ListModelsRequest())
        return [served.model(one.model) for one in cast("inference_pb2.ListModelsResponse", response).models]

    async def tokenize(self, prompt: Prompt, options: Options | None = None, **keywords: Unpack[Keywords]) -> list[int]:
        """The token ids of a prompt, as an answer would begin with them.

        Raises:
            RefusedError: the gateway refused the prompt.
            NoGatewayError: none answers.
        """
        wanted = chosen(options, **keywords)
        request = inference_pb2.TokenizeRequest(model=wanted.model, prompt=prompt_to_pb(prompt, wanted))
        response = await self._ask(self._stub.Tokenize, request)
        return list(cast("inference_pb2.TokenizeResponse", response).tokens.ids)

    async def status(self) -> served.Status:
        """How busy the pairs are.

        Raises:
            RefusedError: the gateway refused the call.
            NoGatewayError: none answers.
        """
        response = await self._ask(self._stub.GetStatus, inference_pb2.GetStatusRequest())
        return served.status(cast("inference_pb2.GetStatusResponse", response))

    async def _reach(self) -> None:
        """Waits until a gateway has taken the connection, which one that is open already has."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), REACH_S)
        except TimeoutError:
            raise NoGatewayError(unreachable(self._address)) from None

    async def _ask(self, method: Any, request: Any) -> object:
        await self._reach()
        try:
            return await method(request, timeout=ASK_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise failed(error, self._address, began=False) from None
