"""DrafterService on the wire; nothing but conversion between messages and the current attachment."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from services.common.metrics.catalogue import DrafterMetrics
from services.common.pair.attach import PROTOCOL_VERSION
from services.common.pair.attach_convert import info_to_pb, offer_from_pb
from services.common.pair.turns import BEHIND_PROMPTS, NODES, Answer
from services.common.pair.wire_convert import answer_to_pb, texts_from_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc
from services.common.request.errors import PacelineError, Reason, invalid_field, protocol, unavailable
from services.drafter.attachment import Attachment
from services.drafter.current_attachment import CurrentAttachment
from services.drafter.describe import DrafterIdentity
from services.drafter.proposers import Proposer

Context = grpc.aio.ServicerContext[Any, Any]


class DrafterService(drafter_pb2_grpc.DrafterServiceServicer):
    """Serves one target at a time.

    Pace drafts on the event loop, because a hop to a thread would cost more than it gains.
    """

    def __init__(self, current: CurrentAttachment, identity: DrafterIdentity, metrics: DrafterMetrics) -> None:
        """`proposer` is set once its checkpoint is loaded; until then calls are UNAVAILABLE."""
        self._current = current
        self._identity = identity
        self._metrics, self._count = metrics, draft_count(metrics)
        self.proposer: Proposer | None = None

    async def Attach(self, request: pb.AttachRequest, context: "Context") -> pb.AttachResponse:
        """Maps the arena and captures the steps; replaces an earlier attachment."""
        try:
            response = await self._attach(request)
        except PacelineError as error:
            self._metrics.drafter_refusals[error.reason.value].inc()
            raise
        self._metrics.drafter_attachments.inc()
        return response

    async def Pace(
        self, request_iterator: AsyncIterator[pb.PaceRequest], context: "Context"
    ) -> AsyncIterator[pb.PaceResponse]:
        """Drafts what is asked here; the attachment ends with the stream, even when it is asked elsewhere."""
        with self._current.pacing() as attachment:
            async for request in request_iterator:
                if (response := paced(attachment, request)) is not None:
                    yield response
                    self._count(response.draft_us / 1e6)

    async def Describe(
        self, request: pb.DrafterServiceDescribeRequest, context: "Context"
    ) -> pb.DrafterServiceDescribeResponse:
        """The drafter and its attachment."""
        if request.protocol_version != PROTOCOL_VERSION:
            raise protocol(PROTOCOL_VERSION, request.protocol_version)
        attachment = self._current.attachment
        return pb.DrafterServiceDescribeResponse(
            protocol_version=PROTOCOL_VERSION,
            drafter=info_to_pb(self._identity.info(self._ready_proposer(), attachment)),
            generation=attachment.offer.generation if attachment else 0,
            rounds=attachment.rounds if attachment else 0,
        )

    async def _attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        proposer = self._ready_proposer()
        if request.protocol_version != PROTOCOL_VERSION:
            raise protocol(PROTOCOL_VERSION, request.protocol_version)
        try:
            offer = offer_from_pb(request)
        except ValueError as error:
            raise invalid_field("arena", str(error)) from None
        attachment = await self._current.attach(offer)
        return pb.AttachResponse(
            protocol_version=PROTOCOL_VERSION,
            nonce_reply=offer.nonce + 1,
            drafter=info_to_pb(self._identity.info(proposer, attachment)),
        )

    def _ready_proposer(self) -> Proposer:
        if self.proposer is None:
            raise unavailable(Reason.ATTACH_REFUSED, "the drafter is still loading its checkpoint")
        return self.proposer


def paced(attachment: Attachment, request: pb.PaceRequest) -> pb.PaceResponse | None:
    """What an attachment answers; None to a message that only brings texts.

    Raises:
        PacelineError: the round or a text is none that was agreed on.
    """
    attachment.learn(request.generation, texts_from_pb(request), request.slots)
    if request.texts and not request.width:
        return None
    started = time.perf_counter_ns()
    bits = NODES * request.nodes | BEHIND_PROMPTS * request.behind_prompts
    attachment.draft(request.generation, request.round, request.bucket, request.width, request.rows, bits)
    drafts = attachment.drafts(request.rows, request.width)
    micros = (time.perf_counter_ns() - started) // 1000
    return answer_to_pb(Answer(request.generation, request.round, micros), drafts)


def draft_count(metrics: DrafterMetrics) -> Callable[[float], None]:
    """Return what counts a draft of so many seconds; any thread may call it."""

    def count(seconds: float) -> None:
        metrics.drafter_rounds.inc()
        metrics.draft_seconds.observe(seconds)

    return count
