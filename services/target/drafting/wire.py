"""Hand-off by wire, the target's side: answers bring the drafts, and the target fills a mailbox of its own with them.

Where no memory is shared, each request also brings what the drafter would read of it: the tokens that are new.
Suffixes: S slots + 1, C context tokens, B rows, K draft tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch

from services.common.pair import attach
from services.common.pair.arena import Arena
from services.common.pair.gate import Gate
from services.common.pair.turns import Answer, Ask
from services.common.pair.wire import MAX_MESSAGE_TOKENS, Text
from services.common.pair.wire_convert import answer_from_pb, ask_to_pb, drafts_from_pb, texts_to_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.target.core.plan import Plan
from services.target.drafting.mailbox import Mailbox
from services.target.drafting.pace import Pace, PaceStream

if TYPE_CHECKING:
    from services.target.drafting.handoff import Event, Partner


class WireHandoff:
    """Host order with the drafts in the answers. All but `pace` and `join` belong to the engine's thread."""

    wanted = mode = "wire"
    look_ahead = 0
    gate: Gate | None = None

    def __init__(self, arena: Arena, device: torch.device, shares_memory: bool) -> None:
        """Without `shares_memory` nobody maps the arena: what is published there is sent."""
        self._arena, self._device, self._shares_memory = arena, device, shares_memory
        self._mailbox = Mailbox.private(Mailbox.shared(arena))
        self._post = Post(self._mailbox)

    def mailbox(self, arena: Arena) -> Mailbox:
        """The target's own; no drafter can write it."""
        return self._mailbox

    def pace(self, stream: PaceStream) -> Pace:
        """Asks over the stream and fills the mailbox with what is answered."""
        return WirePace(stream, self._post, None if self._shares_memory else Texts(self._arena))

    def join(self, generation: int, partner: Partner) -> None:
        """The engine asks the attachment itself."""

    def set_generation(self, generation: int) -> None:
        """Tags tell the drafts of other attachments."""

    def published(self, plan: Plan) -> None:
        """The message must not overtake the copies."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def before_verify(self, plan: Plan) -> None:
        """What was answered goes to the device."""
        self._post.deliver()

    def wait(self, plan: Plan, done: Event | None) -> None:
        """Nothing can hold it up."""
        if done is not None:
            done.synchronize()


class WirePace:
    """One attachment's rounds; one thread sends and receives."""

    def __init__(self, stream: PaceStream, post: Post, texts: Texts | None) -> None:
        """`texts` is None where memory is shared."""
        self._stream, self._post, self._texts = stream, post, texts
        self._count = 0

    def send(self, ask: Ask) -> None:
        """Sends a round, and before it the texts that do not fit into its message."""
        self._count = ask.width - 1
        if self._texts is None:
            self._stream.put(ask_to_pb(ask))
            return
        slots = self._texts.slots(ask.rows)
        *before, last = split(self._texts.news(slots)) or [[]]
        for texts in before:
            self._stream.put(texts_to_pb(ask.generation, texts))
        self._stream.put(ask_to_pb(ask, last, slots))

    def receive(self, timeout_s: float) -> Answer | None:
        """The next answer, its drafts taken to the mailbox whatever they are; None when the stream has ended.

        Raises:
            TimeoutError: Nothing came in time.
        """
        reply = self._stream.take(timeout_s)
        if reply is None:
            return None
        self._post.fill(reply, self._count)
        return answer_from_pb(reply)


class Post:
    """Writes answers into a mailbox, which is judged by tags and ids like any other (I6)."""

    def __init__(self, mailbox: Mailbox) -> None:
        """On a GPU answers gather in pinned memory first."""
        self._mailbox = mailbox
        self._on_gpu = mailbox.tokens_SK.is_cuda
        self._tokens_SK, self._tag_S3 = mailbox.tokens_SK, mailbox.tag_S3
        if self._on_gpu:
            self._tokens_SK, self._tag_S3 = (each.cpu().pin_memory() for each in (self._tokens_SK, self._tag_S3))

    def fill(self, reply: pb.PaceResponse, count: int) -> None:
        """Keeps rows of `count` tokens; a message with more rows than there are slots says nothing."""
        slots = len(self._tag_S3) - 1
        if len(reply.drafts) > slots:
            return
        tokens_SK, tag_S3 = self._tokens_SK.numpy(), self._tag_S3.numpy()
        for draft in drafts_from_pb(reply):
            if draft.slot < slots and len(draft.token_ids) == count:
                # Numbers beyond the signed range become negative: out of range as an id, foreign as a tag.
                tokens_SK[draft.slot, :count] = np.array(draft.token_ids, np.uint32).view(np.int32)
                tag_S3[draft.slot] = np.array((reply.round, draft.epoch, reply.generation), np.uint64).view(np.int64)

    def deliver(self) -> None:
        """Enqueues the copy to the device; the round is over before the next answer is written."""
        if self._on_gpu:
            self._mailbox.tokens_SK.copy_(self._tokens_SK, non_blocking=True)
            self._mailbox.tag_S3.copy_(self._tag_S3, non_blocking=True)


class Texts:
    """What one attachment was sent of every slot's text: nothing at first, so that any drafter can take over."""

    def __init__(self, arena: Arena) -> None:
        """Reads what is published in the arena."""
        self._rows_B, self._history_SC = arena.tensor(attach.ROWS), arena.tensor(attach.HISTORY)
        self._end_S, self._epoch_S = arena.tensor(attach.HISTORY_LENGTH), arena.tensor(attach.EPOCH)
        self._sent: dict[int, tuple[int, int]] = {}

    def slots(self, rows: int) -> list[int]:
        """The slots of a round's real rows."""
        return [int(slot) for slot in self._rows_B[:rows].tolist()]

    def news(self, slots: Sequence[int]) -> list[Text]:
        """The tokens of these slots that were not sent yet, anchors included; counts them as sent."""
        ends, epochs = torch.stack((self._end_S, self._epoch_S)).tolist()
        spans = [(slot, epochs[slot], self._start(slot, epochs[slot]), ends[slot]) for slot in slots]
        self._sent.update({slot: (epoch, end) for slot, epoch, _, end in spans})
        # One transfer for all of them.
        pieces = [self._history_SC[slot, start:end] for slot, _, start, end in spans]
        tokens = iter(torch.cat(pieces).tolist())
        texts = [Text(slot, epoch, start, list(islice(tokens, end - start))) for slot, epoch, start, end in spans]
        return [text for text in texts if text.token_ids]

    def _start(self, slot: int, epoch: int) -> int:
        known, end = self._sent.get(slot, (epoch, 0))
        return end if known == epoch else 0


def split(texts: Sequence[Text], most: int = MAX_MESSAGE_TOKENS) -> list[list[Text]]:
    """Texts in messages of at most `most` tokens, in order; a long text is cut."""
    messages: list[list[Text]] = []
    room = 0
    for piece in _pieces(texts, most):
        if len(piece.token_ids) > room:
            messages.append([])
            room = most
        messages[-1].append(piece)
        room -= len(piece.token_ids)
    return messages


def _pieces(texts: Sequence[Text], most: int) -> Iterator[Text]:
    for text in texts:
        for first in range(0, len(text.token_ids), most):
            yield text._replace(start=text.start + first, token_ids=text.token_ids[first : first + most])
