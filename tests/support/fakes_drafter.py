"""A drafter without a model: a real DrafterService that answers Attach and Pace as a test tells it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from services.common.pair.attach import PROTOCOL_VERSION
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc


@dataclass
class Behaviour:
    """What the drafter does; a test may change it while rounds run."""

    refuse: bool = False
    finds_damage: int = 0
    """So many attachments are refused because the weights' checksum is wrong."""
    wrong_nonce: bool = False
    version: int = PROTOCOL_VERSION
    late_s: float = 0.0
    hang: threading.Event = field(default_factory=threading.Event)
    """While set, rounds are not answered."""
    end_after: int = 1 << 30
    """The stream ends after so many rounds."""
    garbage: bool = False
    """Answers of other rounds and generations come before the right one."""


class FakeDrafter(rpc.DrafterServiceServicer):
    """Serves on a Unix socket; counts attachments and rounds."""

    def __init__(self, folder: Path, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.address = f"unix:{folder}/fake.sock"
        self.attaches: list[pb.AttachRequest] = []
        self.rounds: list[int] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        rpc.add_DrafterServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def Attach(self, request: pb.AttachRequest, context: grpc.ServicerContext) -> pb.AttachResponse:
        self.attaches.append(request)
        if self.behaviour.refuse:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not this arena")
        if len(self.attaches) <= self.behaviour.finds_damage:
            context.abort(grpc.StatusCode.DATA_LOSS, "damaged")
        return pb.AttachResponse(
            protocol_version=self.behaviour.version,
            nonce_reply=request.nonce + (2 if self.behaviour.wrong_nonce else 1),
            drafter=pb.DrafterInfo(proposer="fake", max_draft=7, instance_id=f"i{len(self.attaches)}"),
        )

    def Pace(
        self, request_iterator: Iterator[pb.PaceRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.PaceResponse]:
        for count, request in enumerate(request_iterator):
            if count >= self.behaviour.end_after:
                return
            self.rounds.append(request.round)
            time.sleep(self.behaviour.late_s)
            while self.behaviour.hang.is_set() and context.is_active():
                time.sleep(0.01)
            yield from self.answer(request)

    def answer(self, request: pb.PaceRequest) -> list[pb.PaceResponse]:
        """What is answered to one request."""
        right = pb.PaceResponse(generation=request.generation, round=request.round, draft_us=5)
        if not self.behaviour.garbage:
            return [right]
        return [
            pb.PaceResponse(generation=request.generation, round=request.round - 1),
            pb.PaceResponse(generation=request.generation - 1, round=request.round),
            pb.PaceResponse(),
            right,
        ]

    def Describe(
        self, request: pb.DrafterServiceDescribeRequest, context: grpc.ServicerContext
    ) -> pb.DrafterServiceDescribeResponse:
        return pb.DrafterServiceDescribeResponse(protocol_version=PROTOCOL_VERSION, rounds=len(self.rounds))

    def stop(self) -> None:
        self.behaviour.hang.clear()
        self._server.stop(0).wait()
