"""Tells a drafter that cannot map the target's memory the tokens that are new, in messages of bounded size.

Suffixes: S slots + 1, C context tokens, B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

import torch

from services.common.pair import attach
from services.common.pair.arena import Arena
from services.common.pair.turns import Ask
from services.common.pair.wire import MAX_MESSAGE_TOKENS, Text
from services.common.pair.wire_convert import ask_to_pb, texts_to_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb


class Asking(Protocol):
    """Makes the messages that ask for a round."""

    def requests(self, ask: Ask) -> list[pb.PaceRequest]:
        """The messages that ask for the round, in order."""
        ...


class AskAlone:
    """For a drafter that reads the texts in shared memory."""

    def requests(self, ask: Ask) -> list[pb.PaceRequest]:
        """One message: the round."""
        return [ask_to_pb(ask)]


class Texts:
    """How much of every slot's text one attachment was sent. It begins at nothing, so any drafter can take over."""

    def __init__(self, arena: Arena) -> None:
        """Reads what is published in the arena."""
        self._rows_B, self._history_SC = arena.tensor(attach.ROWS), arena.tensor(attach.HISTORY)
        self._end_S, self._epoch_S = arena.tensor(attach.HISTORY_LENGTH), arena.tensor(attach.EPOCH)
        self._sent: dict[int, tuple[int, int]] = {}

    def requests(self, ask: Ask) -> list[pb.PaceRequest]:
        """The round with the new tokens of its rows, behind messages with the tokens that do not fit into it."""
        slots = self.slots(ask.rows)
        *before, last = split(self.news(slots)) or [[]]
        return [*(texts_to_pb(ask.generation, texts) for texts in before), ask_to_pb(ask, last, slots)]

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
    """Splits texts into lists of at most `most` tokens, in order; a long text is cut."""
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
