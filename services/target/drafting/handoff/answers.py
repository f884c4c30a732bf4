"""Fills a mailbox in the target's own memory with the drafts that answers bring.

Suffixes: S slots + 1, K draft tokens.
"""

from __future__ import annotations

import numpy as np

from services.common.pair.wire import Draft
from services.common.pair.wire_convert import drafts_from_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.target.drafting.handoff.mailbox import Mailbox


class AnswerPost:
    """Writes answers into a mailbox; verify checks its tags and ids as it does for any mailbox (I6)."""

    def __init__(self, mailbox: Mailbox) -> None:
        """On a GPU answers are collected in pinned memory first."""
        self._mailbox = mailbox
        self._on_gpu = mailbox.tokens_SK.is_cuda
        self._tokens_SK, self._tag_S3, self._parents_SK = mailbox.tokens_SK, mailbox.tag_S3, mailbox.parents_SK
        if self._on_gpu:
            self._tokens_SK, self._tag_S3 = (each.cpu().pin_memory() for each in (self._tokens_SK, self._tag_S3))
            if self._parents_SK is not None:
                self._parents_SK = self._parents_SK.cpu().pin_memory()

    def fill(self, reply: pb.PaceResponse, count: int) -> None:
        """Keeps rows of a known slot with `count` tokens; ignores a message with more rows than there are slots."""
        slots = len(self._tag_S3) - 1
        if len(reply.drafts) > slots:
            return
        tokens_SK, tag_S3 = self._tokens_SK.numpy(), self._tag_S3.numpy()
        for draft in drafts_from_pb(reply):
            if draft.slot < slots and len(draft.token_ids) == count:
                # Numbers beyond the signed range become negative: out of range as an id, foreign as a tag.
                tokens_SK[draft.slot, :count] = np.array(draft.token_ids, np.uint32).view(np.int32)
                self._set_parents(draft, count)
                tag_S3[draft.slot] = np.array((reply.round, draft.epoch, reply.generation), np.uint64).view(np.int64)

    def _set_parents(self, draft: Draft, count: int) -> None:
        """Where drafts are trees; one that says nothing of parents, or of too many or too few, is a chain."""
        if self._parents_SK is not None:
            told = draft.parents if len(draft.parents) == count else range(count)
            self._parents_SK.numpy()[draft.slot, :count] = np.array(told, np.uint32).view(np.int32)

    def deliver(self) -> None:
        """Enqueues the copy to the device.

        The round ends before the next answer is written, so the pinned memory is free by then.
        """
        if self._on_gpu:
            self._mailbox.tokens_SK.copy_(self._tokens_SK, non_blocking=True)
            self._mailbox.tag_S3.copy_(self._tag_S3, non_blocking=True)
            if self._mailbox.parents_SK is not None and self._parents_SK is not None:
                self._mailbox.parents_SK.copy_(self._parents_SK, non_blocking=True)
