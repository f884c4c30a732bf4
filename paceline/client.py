"""The synchronous client."""

import time
from collections.abc import Iterator
from typing import Any, Self, Unpack, cast

import grpc

from paceline import served
from paceline.answer import Answer, Piece, Reading
from paceline.channel import Reach, Tls, channel_options, checked, metadata, never_arrived, secured, unreachable
from paceline.errors import NoGatewayError, PacelineError, refused
from paceline.options import Keywords, Options, Prompt, chosen
from paceline.request import generate_request, prompt_to_pb
from paceline.v1 import inference_pb2, inference_pb2_grpc

DEADLINE_S = 600.0
"""Longest answer."""

ASK_S = 30.0
"""Longest wait for what is no answer."""


def failed(error: grpc.RpcError, address: str, began: bool) -> PacelineError:
    """What a failed call is to the program; `began` when something of its answer had come."""
    return refused(error) if began or not never_arrived(error) else NoGatewayError(unreachable(address))


class Stream:
    """The pieces of one answer, as an iterator; what came so far is in `answer`."""

    def __init__(self, call: Any, reading: Reading, address: str) -> None:
        """Made by Client.stream."""
        self._call = call
        self._reading = reading
        self._address = address

    @property
    def answer(self) -> Answer:
        """The answer so far; whole when the iterator has ended."""
        return self._reading.answer

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        """The next piece.

        Raises:
            RefusedError: the gateway refused the call or could not finish it.
            NoGatewayError: the gateway went away before the answer began.
        """
        try:
            for message in self._call:
                piece = self._reading.take(message)
                if piece is not None:
                    return piece
        except grpc.RpcError as error:
            if not self.answer.finish:
                raise failed(error, self._address, bool(self.answer.request_id)) from None
        raise StopIteration

    def cancel(self) -> None:
        """Ends the answer where it is; its memory on the target is free within two rounds."""
        self._reading.cancel()
        self._call.cancel()


class Client:
    """Talks to the gateway at an address. Any number of threads may use it.

    A context manager: entering looks for the gateway, leaving closes. Without `with`, call `close` at the end.

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
        self._closed = False
        if tls is None:
            self._channel = grpc.insecure_channel(address, channel_options(address))
        else:
            self._channel = grpc.secure_channel(address, secured(tls), channel_options(address, tls))
        self._connection = Reach(self._channel, address)
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)

    def __enter__(self) -> Self:
        try:
            self._reach()
        except NoGatewayError:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and every call on it."""
        self._closed = True
        self._channel.close()

    def stream(
        self,
        prompt: Prompt,
        options: Options | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        **keywords: Unpack[Keywords],
    ) -> Stream:
        """Begins an answer; keywords are fields of Options and count before `options`.

        `deadline_s` is the last resort, `timeout_s` ends in good order.

        Raises:
            TypeError, InvalidValueError: a value does not fit its field; the message begins with its name.
            NoGatewayError: none answers.
        """
        request = generate_request(prompt, chosen(options, **keywords))
        self._reach()
        reading = Reading(time.perf_counter)
        call = self._stub.Generate(request, timeout=deadline_s, metadata=self._metadata)
        return Stream(call, reading, self._address)

    def generate(
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
        for _ in stream:
            pass
        return stream.answer

    def model(self, name: str = "") -> served.Model:
        """A model by its name or an alias, and every limit; without a name the only one.

        Raises:
            RefusedError: the gateway refused the call, or no target has said yet what it serves.
            NoGatewayError: none answers.
        """
        response = self._ask(self._stub.GetModel, inference_pb2.GetModelRequest(model=name))
        return served.model(cast("inference_pb2.GetModelResponse", response).model)

    def models(self) -> list[served.Model]:
        """Every model that is served, each with its limits.

        Raises:
            RefusedError: the gateway refused the call, or no target has said yet what it serves.
            NoGatewayError: none answers.
        """
        response = self._ask(self._stub.ListModels, inference_pb2.ListModelsRequest())
        return [served.model(one.model) for one in cast("inference_pb2.ListModelsResponse", response).models]

    def tokenize(self, prompt: Prompt, options: Options | None = None, **keywords: Unpack[Keywords]) -> list[int]:
        """The token ids of a prompt, as an answer would begin with them.

        Raises:
            RefusedError: the gateway refused the prompt.
            NoGatewayError: none answers.
        """
        wanted = chosen(options, **keywords)
        request = inference_pb2.TokenizeRequest(model=wanted.model, prompt=prompt_to_pb(prompt, wanted))
        return list(cast("inference_pb2.TokenizeResponse", self._ask(self._stub.Tokenize, request)).tokens.ids)

    def status(self) -> served.Status:
        """How busy the pairs are.

        Raises:
            RefusedError: the gateway refused the call.
            NoGatewayError: none answers.
        """
        response = self._ask(self._stub.GetStatus, inference_pb2.GetStatusRequest())
        return served.status(cast("inference_pb2.GetStatusResponse", response))

    def _reach(self) -> None:
        """Waits until a gateway has taken the connection."""
        if self._closed:
            raise ValueError("the client is closed")
        self._connection.wait()

    def _ask(self, method: Any, request: Any) -> object:
        self._reach()
        try:
            return method(request, timeout=ASK_S, metadata=self._metadata)
        except grpc.RpcError as error:
            raise failed(error, self._address, began=False) from None
