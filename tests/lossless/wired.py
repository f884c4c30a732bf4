"""Hand-off by wire without a network: requests and answers as bytes between the target's side and the drafter's."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from services.common.device.graph import StepGraphs
from services.common.model import load_block
from services.common.pair.handoff import HandoffMode
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import Attachment, DraftRunner, open_attachment
from services.drafter.handoff.wire import WireHandoff
from services.drafter.mapping import Mapped
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.drafter.proposers.ngram import NgramProposer
from services.drafter.service import paced
from services.target.core.plan import Plan
from services.target.drafting.offer import BareOffers, OfferConstants
from tests.lossless.proposers import Perfect
from tests.lossless.rig import GENERATION, Proposer, ProposerFactory, Rig
from tests.support.fakes_attachment import FakeAttachment

CPU = torch.device("cpu")
Reply = Callable[[pb.PaceRequest], pb.PaceResponse | None]


class Loop:
    """A Pace stream whose other end is a function; what it answers to another round is followed by an empty answer."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._answers: deque[bytes] = deque()

    def put(self, message: pb.PaceRequest) -> None:
        self._answers.clear()
        answer = self._reply(pb.PaceRequest.FromString(message.SerializeToString()))
        if answer is not None:
            empty = pb.PaceResponse(generation=message.generation, round=message.round)
            self._answers.extend((answer.SerializeToString(), empty.SerializeToString()))

    def take(self, timeout_s: float) -> pb.PaceResponse:
        return pb.PaceResponse.FromString(self._answers.popleft())


class Wired:
    """Asks each round as the engine does."""

    def __init__(self, rig: Rig, reply: Reply) -> None:
        attachment = FakeAttachment(GENERATION, stream=Loop(reply))
        self._drafts = rig.handoff.open(attachment, lambda: None)
        rig.runner.use(self._drafts)

    def draft(self, plan: Plan) -> bool:
        """Brings the drafts to the target's mailbox."""
        self._drafts.ask(plan)
        return self._drafts.wait(plan)


def wired(drafter: Path | None) -> ProposerFactory:
    """The DFlash drafter of a folder over shared memory, or prompt lookup with none."""

    def build(rig: Rig) -> Proposer:
        attachment = _alone(rig) if drafter is None else _beside(rig, drafter)
        return Wired(rig, lambda request: paced(attachment, request))

    return build


def lying(truth: Mapping[str, Sequence[int]], seed: int) -> ProposerFactory:
    """Answers with the truth, and with rows and messages that are wrong in every way that the format allows."""

    def build(rig: Rig) -> Proposer:
        return Wired(rig, Liar(rig, truth, seed).reply)

    return build


class Liar:
    """Spoils about half of the rows and some messages."""

    def __init__(self, rig: Rig, truth: Mapping[str, Sequence[int]], seed: int) -> None:
        self._rig, self._perfect, self._random = rig, Perfect(rig, truth), random.Random(seed)

    def reply(self, request: pb.PaceRequest) -> pb.PaceResponse:
        """The answer to a round; it says another round or generation now and then."""
        pick = self._random
        rows = self._rig.runner.steps.round.rows_B[: request.rows].tolist()
        drafts = [self._row(slot, request.width - 1) for slot in rows]
        if pick.random() < 0.05:
            drafts *= 1000
        shift = pick.choice(((0, 0),) * 8 + ((-1, 0), (0, 1)))
        return pb.PaceResponse(
            generation=request.generation + shift[1],
            round=request.round + shift[0],
            drafts=pick.sample(drafts, len(drafts)),
        )

    def _row(self, slot: int, count: int) -> pb.RowDraft:
        pick = self._random
        tokens = self._perfect.next_tokens(slot, count)
        draft = pb.RowDraft(slot=slot, epoch=int(self._rig.runner.pool.state.epoch_S[slot]), token_ids=tokens)
        kind = pick.randrange(14)
        if kind == 0:
            draft.slot = pick.choice((self._rig.shapes.slots + 99, 2**32 - 1, self._rig.shapes.pad_slot))
        elif kind == 1:
            draft.epoch = pick.choice((0, draft.epoch + 1, 2**64 - 1))
        elif kind == 2:
            del draft.token_ids[pick.randrange(count) :]
        elif kind == 3:
            draft.token_ids.extend(tokens)
        elif kind == 4:
            draft.token_ids[pick.randrange(count)] = pick.choice((self._rig.model.spec.vocab_size, 2**31, 2**32 - 1))
        elif kind == 5:
            draft.token_ids[pick.randrange(count)] = pick.randrange(self._rig.model.spec.vocab_size)
        return draft


def _alone(rig: Rig) -> Attachment:
    """An n-gram drafter that is told every text."""
    terms = _terms(rig)
    with BareOffers(terms).offer(GENERATION) as offer:
        return open_attachment(offer, NgramProposer(), CPU)


def _beside(rig: Rig, drafter: Path) -> Attachment:
    """A DFlash drafter on the rig's arena."""
    block = CheckpointProposer(load_block(drafter, dtype=rig.settings.dtype), rig.settings.dtype)
    shared = ArenaView.of(rig.arena, rig.shapes.block_size)
    handoff = WireHandoff(shared)
    block.check(shared)
    pacer = DraftRunner(shared, block, GENERATION, StepGraphs("cpu"), handoff)
    terms = _terms(rig)
    pacer.warm_up(terms.buckets, terms.widths, trees=terms.trees)
    with BareOffers(terms).offer(GENERATION) as offer:
        return Attachment(offer, Mapped(rig.arena, 0), pacer, handoff, rig.shapes.max_draft, CPU)


def _terms(rig: Rig) -> OfferConstants:
    shapes = rig.shapes
    return OfferConstants(
        embedding_sha256="",
        drafter_sha256="",
        slots=shapes.slots,
        buckets=shapes.buckets,
        widths=shapes.widths[1:],
        trees=shapes.trees,
        block_size=shapes.block_size,
        target_pid=0,
        handoff=HandoffMode.WIRE,
        context_limit=shapes.context_limit,
    )
