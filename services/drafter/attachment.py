"""One attachment: a mapped arena, and the steps that are captured on it and replayed round by round."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from services.common.device.device import end_if_lost
from services.common.device.graph import CaptureCost, Counters, StepGraphs
from services.common.kernels.ahead import briefly, compile_steps
from services.common.kernels.mailbox import write_mailbox
from services.common.pair.arena.flags import setter
from services.common.pair.attach import AttachOffer
from services.common.pair.turns import BEHIND_PROMPTS, DRAWN, NODES
from services.common.pair.wire import Draft, Text
from services.common.request.errors import invalid_field
from services.common.serving.progress import STEPS, Progress
from services.drafter.arena_view import ArenaView
from services.drafter.errors import refused
from services.drafter.handoff.build import build_handoff
from services.drafter.handoff.protocol import Handoff
from services.drafter.handshake import check_arena, check_terms, weights_checked
from services.drafter.mapping import Mapped, map_arena
from services.drafter.proposers import Proposer


class DraftRunner:
    """One step per bucket, width, and chain or tree, captured once; where noise is made of seeds, one more for draws.

    A round changes only the contents of the step's inputs (I3, I4)."""

    def __init__(
        self, shared: ArenaView, proposer: Proposer, generation: int, graphs: StepGraphs, handoff: Handoff
    ) -> None:
        self._shared = shared
        self._proposer = proposer
        self._graphs = graphs
        self._handoff = handoff
        self._draws = proposer.draws and shared.draw_seed_S is not None
        self._stamp_2 = torch.tensor([0, generation], dtype=torch.int64, device=shared.tag_S3.device)
        self._set_round = setter(self._stamp_2[0])

    @property
    def counters(self) -> Counters:
        """Captures and replays so far."""
        return self._graphs.counters

    @property
    def capture_cost(self) -> CaptureCost:
        """What capturing every step took and holds."""
        return self._graphs.cost

    @torch.inference_mode()
    def warm_up(
        self,
        buckets: Sequence[int],
        widths: Sequence[int],
        threads: int = 1,
        trees: Sequence[int] = (),
        compiled: bool = False,
    ) -> None:
        """Captures every step, largest first, and has run it once, so that the first round is as quick as any.

        There are chains of `widths`, and trees of as many nodes as `trees` say. With more than one of `threads`
        kernels are compiled before, unless this process has `compiled` them for an earlier attachment.
        """
        tensors = [*self._shared.tensors(), self._stamp_2]
        kinds = [*((width, False) for width in widths), *((width, True) for width in trees)]
        shapes = [(b, *kind) for kind in sorted(kinds, reverse=True) for b in sorted(buckets, reverse=True)]
        views = {False: self._shared.undrawn} | ({True: self._shared} if self._draws else {})
        steps = {
            (*shape, drawn): partial(_draft_round, view, self._proposer, self._handoff, self._stamp_2, *shape)
            for shape in shapes
            for drawn, view in views.items()
        }
        if threads > 1 and self._graphs.compiles:
            if not compiled:
                with self._graphs.aside():
                    compile_steps(steps.values(), threads)
            self._graphs.brief = briefly
        progress = Progress(STEPS, len(steps))
        for shape, step in steps.items():
            self._graphs.capture(shape, step, tensors)
            if self._graphs.compiles:  # elsewhere a capture has run it
                self._graphs.replay(shape)
            progress.add()
        self._graphs.settle()
        self._set_round(0)

    @torch.inference_mode()
    def draft(self, number: int, bucket: int, width: int, bits: int = 0) -> None:
        """Fills the mailbox for round `number`; returns when it is filled, or, with flags, when the draft is enqueued.

        `bits` are those of an Ask.

        Raises:
            KeyError: no step was captured for such a round.
        """
        self._handoff.begin(number, bucket, bits & BEHIND_PROMPTS != 0)
        # Behind the wait: where processes take turns, a kernel that could run at once would cost two switches of the
        # GPU during the target's verify. Assigning instead would make the host wait for the draft before, which reads
        # the stamp.
        self._set_round(number)
        self._graphs.replay((bucket, width, bits & NODES != 0, self._draws and bits & DRAWN != 0))
        self._handoff.end(number)


def _draft_round(
    shared: ArenaView, proposer: Proposer, handoff: Handoff, stamp_2: Tensor, bucket: int, width: int, nodes: bool
) -> None:
    handoff.hold(stamp_2, bucket)
    rows_B = shared.rows_B[:bucket]
    mailbox = shared.tokens_SK, shared.tag_S3
    if not nodes:
        drafts_BK = proposer.propose(shared, rows_B, width)
        write_mailbox(drafts_BK, rows_B, shared.epoch_S, stamp_2, *mailbox)
        return
    assert shared.parents_SK is not None, "an arena for trees has a place for parents"
    drafts_BK, parents_BK = proposer.nodes(shared, rows_B, width)
    write_mailbox(drafts_BK, rows_B, shared.epoch_S, stamp_2, *mailbox, parents_BK, shared.parents_SK)


logger = logging.getLogger(__name__)


class Attachment:
    """Drafts for one generation until it is closed; holds only what the target can share again (I5).

    The process ends when the GPU is found to be lost.
    """

    def __init__(
        self,
        offer: AttachOffer,
        mapped: Mapped,
        pacer: DraftRunner,
        handoff: Handoff,
        max_draft: int,
        device: torch.device,
    ) -> None:
        self.offer = offer
        self.max_draft = max_draft
        self.rounds = 0
        self._mapped = mapped
        self._pacer: DraftRunner | None = pacer
        self._handoff = handoff
        self._device = device

    @property
    def watched_pid(self) -> int:
        """The target's pid when it is certain and visible from here, else 0."""
        return self.offer.target_pid if self.offer.target_pid == self._mapped.peer_pid else 0

    @property
    def live(self) -> bool:
        """The arena is still mapped."""
        return self._pacer is not None

    def learn(self, generation: int, texts: Sequence[Text], slots: Sequence[int]) -> None:
        """Takes texts of slots, and the rows of the requested round, from a target that shares no memory.

        Raises:
            PacelineError: the generation is not this attachment's, memory is shared, or a text does not fit.
        """
        if not texts and not slots:
            return
        self._check(generation)
        self._handoff.learn(texts, slots)

    def drafts(self, rows: int, width: int) -> Sequence[Draft]:
        """The drafts that the answer carries; none where the target reads the mailbox."""
        return self._handoff.drafts(rows, width)

    def draft(self, generation: int, number: int, bucket: int, width: int, rows: int, bits: int = 0) -> None:
        """Fills the mailbox for round `number`; the first `rows` of the bucket are real. `bits` are those of an Ask.

        Raises:
            PacelineError: the generation is not this attachment's, or no step has the shape of the round.
        """
        pacer, nodes = self._check(generation), bits & NODES != 0
        if bucket not in self.offer.buckets:
            raise invalid_field("bucket", f"{bucket} was not agreed on")
        if width not in (self.offer.trees if nodes else self.offer.widths):
            raise invalid_field("width", f"{width} was not agreed on")
        if rows > bucket:
            raise invalid_field("rows", f"{rows} rows do not fit bucket {bucket}")
        try:
            pacer.draft(number, bucket, width, bits)
        except RuntimeError:
            end_if_lost(self._device)
            raise
        self.rounds += 1

    def serve(self, observe: Callable[[float], object], core: int) -> None:
        """Starts to serve rounds outside gRPC, if the hand-off does so; `observe` is told each draft's seconds."""
        self._handoff.serve(self.draft, observe, core)

    def close(self) -> None:
        """Waits for a draft that is being made and frees the mapping; a second call does nothing."""
        end_if_lost(self._device)
        if self.live:
            self._handoff.close()
            # Steps keep memory of the arena and of the GPU, which must not live on with a reference to the attachment.
            self._pacer = None
            self._mapped.close()

    def _check(self, generation: int) -> DraftRunner:
        if self._pacer is None or generation != self.offer.generation:
            raise refused(f"generation {generation} is not attached")
        return self._pacer


def open_attachment(
    offer: AttachOffer, proposer: Proposer, device: torch.device, threads: int = 1, compiled: bool = False
) -> Attachment:
    """Maps the arena, checks it against the offer and this drafter, and captures every step; takes seconds.

    With more than one of `threads` kernels are compiled before they are captured, unless this process has `compiled`
    them before.

    Raises:
        PacelineError: ATTACH_REFUSED with the reason; nothing stays mapped.
    """
    end_if_lost(device)
    check_terms(offer, proposer)
    mapped = map_arena(offer, device)
    try:
        shared = check_arena(mapped.arena, offer, proposer)
        with weights_checked(shared, offer.embedding_sha256):
            handoff = build_handoff(offer, mapped, shared)
            pacer = DraftRunner(shared, proposer, offer.generation, StepGraphs(device), handoff)
            pacer.warm_up(offer.buckets, offer.widths, threads, offer.trees, compiled)
        logger.info("steps captured", extra={"steps": pacer.counters.captures, **asdict(pacer.capture_cost)})
    except BaseException:
        mapped.close()
        raise
    limit = shared.tokens_SK.shape[1] if proposer.max_draft is None else proposer.max_draft
    return Attachment(offer, mapped, pacer, handoff, limit, device)
