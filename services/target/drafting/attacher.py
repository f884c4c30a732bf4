"""Keeps a drafter attached: offers the arena, hands each attachment to the engine, and tries again after its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import grpc

from services.common.pair.attach import PROTOCOL_VERSION, DrafterInfo
from services.common.pair.attach_convert import info_from_pb, offer_to_pb
from services.common.pair.wire import MAX_ANSWER_BYTES
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc
from services.common.request.errors import PacelineError
from services.common.serving.tls import Peers
from services.target.core.commands import Attach, Command, Detach
from services.target.core.drafts import Drafts
from services.target.drafting.attachment import LATE, Attachment
from services.target.drafting.handoff.protocol import Handoff
from services.target.drafting.offer import ArenaOffers
from services.target.drafting.peer_pid import listener_pid, watched_process
from services.target.drafting.shared_weights import DamagedWeightsError, SharedWeights

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_REFUSED_PAUSE_S = 30.0
"""Seconds to the next attempt after a refusal; a drafter that calls sound weights damaged makes the target hash them.
"""
_SAID_NO = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DATA_LOSS)
"""Statuses of refusals, after which the drafter keeps nothing mapped."""
_ATTACH_TIMEOUT_S = 60.0
_CONNECT_TIMEOUT_S = 5.0
_LOOK_S = 0.1
_OPTIONS = (("grpc.max_receive_message_length", MAX_ANSWER_BYTES),)


class AttachState(StrEnum):
    """State of the attachment as Describe tells it."""

    NONE = "none"
    ATTACHED = "attached"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class AttacherSettings:
    """Where the drafter is, how long a round's drafts may take, and its TLS.

    A quarantined drafter is one whose attachment ended because it was late. `kill_quarantined` kills its process, so
    that its supervisor starts another one. The kernel must confirm the pid that the drafter told: as the process that
    took the descriptors, or that listens at a `unix:` address. Otherwise it is left alone, and attached again.
    """

    address: str
    watchdog_s: float
    kill_quarantined: bool
    peers: Peers = Peers()


class AttachError(RuntimeError):
    """The drafter cannot be attached now."""


class Attacher:
    """A thread that attaches a drafter, watches it, and attaches again what is at the address a moment after its end.

    Any thread may read its fields.
    """

    def __init__(
        self,
        settings: AttacherSettings,
        offers: ArenaOffers,
        submit: Callable[[Command], None],
        handoff: Handoff,
        failed: Callable[[BaseException], object],
        weights: SharedWeights | None = None,
        observe: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Does not start the thread yet.

        ``failed`` is told when the target's own weights are damaged, and the thread ends. ``weights`` are what drafters
        get, if anything. ``observe`` is that of `Attached`.
        """
        self._handoff = handoff
        self._settings = settings
        self._offers = offers
        self._submit = submit
        self._failed = failed
        self._weights = weights
        self._observe = observe
        self._closing = threading.Event()
        self._attachment: Attachment | None = None
        self._thread = threading.Thread(target=self._run, name="attacher", daemon=True)
        self.first = threading.Event()
        self.state = AttachState.NONE
        self.generation = 0
        self.info: DrafterInfo | None = None
        self.attached = 0
        self.quarantined = 0
        self.lost = 0

    def start(self) -> None:
        """Starts attaching."""
        self._thread.start()

    def close(self) -> None:
        """Gives the drafter up and ends the thread."""
        self._closing.set()
        attachment = self._attachment
        if attachment is not None:
            attachment.close()
        if self._thread.ident is not None:
            self._thread.join(timeout=10.0)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                self._one_attachment()
                pause_s = _FIRST_PAUSE_S
            except DamagedWeightsError as error:
                _LOG.error("the target ends: %s", error)
                self._failed(error)
                return
            except (AttachError, PacelineError, grpc.RpcError, OSError) as error:
                refused = _is(error, grpc.StatusCode.DATA_LOSS)
                _LOG.log(logging.WARNING if refused else logging.INFO, "no drafter: %s", _reason(error))
                pause_s = _REFUSED_PAUSE_S if refused else min(pause_s * 2, _LONGEST_PAUSE_S)
            self._closing.wait(pause_s)

    def _one_attachment(self) -> None:
        """Attaches once and returns when that attachment is over.

        Raises:
            AttachError: The drafter's answer does not fit.
            grpc.RpcError: It cannot be reached, or refuses.
            PacelineError: No flags are left.
            OSError: The arena could not be offered.
            DamagedWeightsError: The target's own weights are damaged.
        """
        with self._settings.peers.connect_sync(self._settings.address, _OPTIONS) as channel:
            _connect(channel, self._closing)
            stub = rpc.DrafterServiceStub(channel)
            generation = self._handoff.generations.take()
            try:
                attachment, drafts = self._handshake(stub, generation)
            except grpc.RpcError as error:
                if _is(error, *_SAID_NO):
                    self._handoff.generations.free(generation)
                raise
            self._begin(attachment, drafts)
            try:
                attachment.wait_over()
            finally:
                self._end(attachment)

    def _handshake(self, stub: rpc.DrafterServiceStub, generation: int) -> tuple[Attachment, Drafts]:
        with self._offers.offer(generation) as offer:
            answer = self._attach(stub, offer_to_pb(offer))
            if answer.protocol_version != PROTOCOL_VERSION:
                raise AttachError(f"the drafter speaks protocol {answer.protocol_version}, not {PROTOCOL_VERSION}")
            if answer.nonce_reply != offer.nonce + 1:
                raise AttachError("the drafter does not see this arena")
            info = info_from_pb(answer.drafter)
            known = (self._offers.claimed_by, listener_pid(self._settings.address))
            process = watched_process(info.pid if info.pid in known else 0)
            attachment = Attachment(generation, info, stub, self._settings.watchdog_s, process, self._observe)
            return attachment, self._handoff.open(attachment, self._offers.take_connection)

    def _attach(self, stub: rpc.DrafterServiceStub, request: pb.AttachRequest) -> pb.AttachResponse:
        """Calls Attach, and once more when the drafter has found its copy of the weights damaged."""
        try:
            return stub.Attach(request, timeout=_ATTACH_TIMEOUT_S)
        except grpc.RpcError as error:
            if not _is(error, grpc.StatusCode.DATA_LOSS) or self._weights is None:
                raise
        _LOG.warning("the drafter's copy of the weights is damaged: sent again")
        self._weights.send_again()
        return stub.Attach(request, timeout=_ATTACH_TIMEOUT_S)

    def _begin(self, attachment: Attachment, drafts: Drafts) -> None:
        self.generation, self.info = attachment.generation, attachment.info
        self.attached += 1
        self.state = AttachState.ATTACHED
        self._attachment = attachment
        self._submit(Attach(drafts))
        self.first.set()
        if self._closing.is_set():
            attachment.close()
        extra = {"generation": attachment.generation, "proposer": attachment.info.proposer}
        _LOG.info("drafter attached", extra={**extra, "handoff": self._handoff.in_use})

    def _end(self, attachment: Attachment) -> None:
        self._submit(Detach(attachment.generation, attachment.fallback))
        late = attachment.fallback == LATE
        self.state = AttachState.QUARANTINED if late else AttachState.NONE
        self.quarantined += late
        self.lost += not late
        self.generation = 0
        if late and self._settings.kill_quarantined:
            _LOG.warning("drafter is late: killed" if attachment.kill() else "drafter is late: left alone, pid unknown")
        self._handoff.generations.end(attachment.generation, attachment.gone)
        attachment.close()
        self._attachment = None


def _connect(channel: grpc.Channel, closing: threading.Event) -> None:
    """Waits for an answer, but no longer than this attacher lives."""
    ready = grpc.channel_ready_future(channel)
    for _ in range(round(_CONNECT_TIMEOUT_S / _LOOK_S)):
        try:
            return ready.result(timeout=_LOOK_S)
        except grpc.FutureTimeoutError:
            if closing.is_set():
                break
    raise AttachError("nothing answers at its address")


def _is(error: Exception, *codes: grpc.StatusCode) -> bool:
    return isinstance(error, grpc.Call) and error.code() in codes


def _reason(error: Exception) -> str:
    return str(error.details()) if isinstance(error, grpc.Call) else str(error)
