"""A small client of InferenceService for the commands of this package."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2

# How long a gateway may take to accept a connection.
REACH_S = 1.5
# Spreads calls over all addresses of a name, and repeats a call that found no gateway before its first message.
SERVICE_CONFIG = (Path(__file__).parent / "service_config.json").read_text()


@dataclass(frozen=True)
class Job:
    """One generation to ask for."""

    prompt: str
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    speculation: bool = True
    ignore_eos: bool = True


@dataclass
class Result:
    """What came back. decode_s runs from the first delta to the last."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    first_s: float = 0.0
    decode_s: float = 0.0
    first_tokens: int = 0
    rounds: int = 0
    accepted: int = 0
    finish: str = ""

    @property
    def tau(self) -> float:
        """Mean tokens committed per round; 0 without a round."""
        return (self.accepted + self.rounds) / self.rounds if self.rounds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """Tokens per second after the first delta."""
        return (len(self.tokens) - self.first_tokens) / self.decode_s if self.decode_s > 0 else 0.0


class NoGatewayError(RuntimeError):
    """No gateway answers at an address."""


class Client:
    """Talks to one gateway; a context manager.

    Raises:
        NoGatewayError: from entering, when none answers within REACH_S.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel = grpc.insecure_channel(address, options=[("grpc.service_config", SERVICE_CONFIG)])
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)

    def __enter__(self) -> "Client":
        try:
            grpc.channel_ready_future(self._channel).result(timeout=REACH_S)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise NoGatewayError(f"no gateway answers at {self._address}: start one with make up") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def stream(self, job: Job, timeout_s: float = 600.0) -> Iterator[inference_pb2.GenerateResponse]:
        """The messages of one generation.

        Raises:
            grpc.RpcError: with the status that the gateway gave.
        """
        request = inference_pb2.GenerateRequest(
            prompt=inference_pb2.Prompt(text=job.prompt),
            sampling=types_pb2.Sampling(temperature=job.temperature, seed=job.seed),
            stopping=types_pb2.Stopping(max_tokens=job.max_tokens, ignore_eos=job.ignore_eos),
            speculation=types_pb2.Speculation(off=not job.speculation),
        )
        yield from self._stub.Generate(request, timeout=timeout_s, wait_for_ready=True)

    def generate(self, job: Job) -> Result:
        """Runs one generation to its end and times it."""
        result, start, first = Result(), time.perf_counter(), 0.0
        for message in self.stream(job):
            now = time.perf_counter()
            if message.HasField("delta"):
                if not result.tokens:
                    result.first_s, first = now - start, now
                    result.first_tokens = len(message.delta.token_ids)
                result.tokens.extend(message.delta.token_ids)
                result.text += message.delta.text
                result.decode_s = now - first
            else:
                result.rounds = message.final.speculation.rounds
                result.accepted = message.final.speculation.accepted
                result.finish = types_pb2.FinishReason.Name(message.final.finish_reason)
        return result
