"""The synchronous client."""

import time
from collections.abc import Iterator
from typing import Any, Self, cast

import grpc

from paceline.answer import Answer, Piece, Reading
from paceline.channel import OPTIONS, REACH_S, Tls, metadata, unreachable
from paceline.errors import NoGatewayError, refused
from paceline.options import Options, Prompt, generate_request, prompt_to_pb
from paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2

DEADLINE_S = 600.0
"""Longest answer."""

ASK_S = 30.0
"""Longest wait for what is no answer."""


class Stream:
    """The pieces of one answer, as an iterator; what came so far is in `answer`."""

    def __init__(self, call: Any, reading: Reading) -> None:
        """Made by Client.stream."""
        self._call = call
        self._reading = reading

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
        """
        try:
            for message in self._call:
                piece = self._reading.take(message)
                if piece is not None:
                    return piece
        except grpc.RpcError as error:
            if not self.answer.finish:
                raise refused(error) from None
        raise StopIteration

    def cancel(self) -> None:
        """Ends the answer where it is; its memory on the target is free within two rounds."""
        self._reading.cancel()
        self._call.cancel()


class Client:
    """Talks to the gateway at an address; a context manager. Any number of threads may use it.

    Raises:
        NoGatewayError: from entering, when none answers within a second and a half.
    """

    def __init__(self, address: str, *, key: str = "", tls: Tls | None = None) -> None:
        """Connects to host:port or a gRPC name; `key` is a tenant's, without `tls` nothing is encrypted."""
        self._address = address
        self._metadata = metadata(key)
        if tls is None:
            self._channel = grpc.insecure_channel(address, OPTIONS)
        else:
            self._channel = grpc.secure_channel(address, tls.credentials(), tls.options)
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)

    def __enter__(self) -> Self:
        try:
            grpc.channel_ready_future(self._channel).result(timeout=REACH_S)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise NoGatewayError(unreachable(self._address)) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and every call on it."""
        self._channel.close()

    def stream(self, prompt: Prompt, options: Options | None = None, *, deadline_s: float = DEADLINE_S) -> Stream:
        """Begins an answer; `deadline_s` is the last resort, `Options.timeout_s` ends in good order."""
        request = generate_request(prompt, options or Options())
        reading = Reading(time.perf_counter)
        call = self._stub.Generate(request, timeout=deadline_s, wait_for_ready=True, metadata=self._metadata)
        return Stream(call, reading)

    def generate(self, prompt: Prompt, options: Options | None = None, *, deadline_s: float = DEADLINE_S) -> Answer:
        """One whole answer.

        Raises:
            RefusedError: the gateway refused the call or could not finish it.
        """
        stream = self.stream(prompt, options, deadline_s=deadline_s)
        for _ in stream:
            pass
        return stream.answer

    def model(self) -> types_pb2.ModelInfo:
        """What is served, and every limit.

        Raises:
            RefusedError: the gateway refused the call, or no target has said yet what it serves.
        """
        response = self._ask(self._stub.GetModel, inference_pb2.GetModelRequest())
        return cast("inference_pb2.GetModelResponse", response).model

    def tokenize(self, prompt: Prompt, options: Options | None = None) -> list[int]:
        """The token ids of a prompt, as an answer would begin with them.

        Raises:
            RefusedError: the gateway refused the prompt.
        """
        request = inference_pb2.TokenizeRequest(prompt=prompt_to_pb(prompt, options or Options()))
        return list(cast("inference_pb2.TokenizeResponse", self._ask(self._stub.Tokenize, request)).tokens.ids)

    def status(self) -> inference_pb2.GetStatusResponse:
        """How busy the pairs are.

        Raises:
            RefusedError: the gateway refused the call.
        """
        return cast(
            "inference_pb2.GetStatusResponse", self._ask(self._stub.GetStatus, inference_pb2.GetStatusRequest())
        )

    def _ask(self, method: Any, request: Any) -> object:
        try:
            return method(request, timeout=ASK_S, wait_for_ready=True, metadata=self._metadata)
        except grpc.RpcError as error:
            raise refused(error) from None
