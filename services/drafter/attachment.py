"""One attachment: a mapped arena with the steps built on it."""

import logging
from collections.abc import Callable
from dataclasses import asdict

import torch

from services.common import attach
from services.common.attach import AttachOffer
from services.common.device import end_if_lost
from services.common.errors import invalid_field
from services.common.graph import StepGraphs
from services.drafter.handshake import Mapped, check_arena, check_terms, map_arena, refused
from services.drafter.pacer import Pacer
from services.drafter.proposers import Proposer
from services.drafter.turn import make_turn
from services.drafter.turn_thread import TurnThread

logger = logging.getLogger(__name__)


class Attachment:
    """Drafts for one generation until it is closed; holds nothing that the target cannot share again (I5).

    A GPU that is found lost ends the process.
    """

    def __init__(self, offer: AttachOffer, mapped: Mapped, pacer: Pacer, max_draft: int, device: torch.device) -> None:
        self._device = device
        self.offer = offer
        self.max_draft = max_draft
        self.rounds = 0
        self._mapped = mapped
        self._pacer: Pacer | None = pacer
        self._thread: TurnThread | None = None

    @property
    def watched_pid(self) -> int:
        """The target's pid when it is certain and visible from here, else 0."""
        return self.offer.target_pid if self.offer.target_pid == self._mapped.peer_pid else 0

    @property
    def live(self) -> bool:
        """The arena is still mapped."""
        return self._pacer is not None

    def draft(self, generation: int, number: int, bucket: int, width: int, rows: int) -> None:
        """Fills the mailbox for round `number`; the first `rows` of the bucket are real.

        Raises:
            PacelineError: the generation is not this attachment's, or the round is none that was agreed on.
        """
        if self._pacer is None or generation != self.offer.generation:
            raise refused(f"generation {generation} is not attached")
        if bucket not in self.offer.buckets:
            raise invalid_field("bucket", f"{bucket} was not agreed on")
        if width not in self.offer.widths:
            raise invalid_field("width", f"{width} was not agreed on")
        if rows > bucket:
            raise invalid_field("rows", f"{rows} rows do not fit bucket {bucket}")
        try:
            self._pacer.draft(number, bucket, width)
        except RuntimeError:
            end_if_lost(self._device)
            raise
        self.rounds += 1

    def take_turns(self, observe: Callable[[float], object], core: int) -> None:
        """Drafts what is asked past gRPC from now on, if that is offered; `observe` is told each draft's seconds."""
        if self._mapped.turns is not None:
            self._thread = TurnThread(self._mapped.turns, self.draft, observe, core)

    def close(self) -> None:
        """Frees the mapping, once nothing drafts into it any more; closing twice is harmless."""
        end_if_lost(self._device)
        if self._thread is not None:
            self._thread.stop()
        pacer, self._pacer = self._pacer, None
        if pacer is not None:
            pacer.close()
        self._mapped.close()


def open_attachment(offer: AttachOffer, proposer: Proposer, device: torch.device) -> Attachment:
    """Maps the arena, checks it against the offer and this drafter, and captures every step; takes seconds.

    Raises:
        PacelineError: ATTACH_REFUSED with the reason; nothing stays mapped.
    """
    end_if_lost(device)
    check_terms(offer, proposer)
    mapped = map_arena(offer, device)
    try:
        shared = check_arena(mapped.arena, offer, proposer)
        turn = make_turn(offer.handoff, mapped.arena.tensor(attach.FLAGS), offer.generation)
        pacer = Pacer(shared, proposer, offer.generation, StepGraphs(device), turn)
        pacer.warm_up(offer.buckets, offer.widths)
        logger.info("steps captured", extra={"steps": pacer.counters.captures, **asdict(pacer.capture_cost)})
    except BaseException:
        mapped.close()
        raise
    limit = shared.tokens_SK.shape[1] if proposer.max_draft is None else proposer.max_draft
    return Attachment(offer, mapped, pacer, limit, device)
