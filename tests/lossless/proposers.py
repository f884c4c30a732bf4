"""Proposers that run in the test's process and write the real mailbox: they may be perfect, wrong or malicious."""

import random
from collections.abc import Mapping, Sequence

import torch

from services.common.pair import attach
from services.target.core.plan import Plan
from tests.lossless.rig import GENERATION, Proposer, ProposerFactory, Rig

WRONG = 1


class Mailbox:
    """Writes drafts and their tag for one slot."""

    def __init__(self, rig: Rig) -> None:
        self._tokens_SK = rig.arena.tensor(attach.TOKENS)
        self._tag_S3 = rig.arena.tensor(attach.TAG)
        self._epoch_S = rig.arena.tensor(attach.EPOCH)

    def write(
        self, slot: int, round_number: int, drafts: Sequence[int], shift: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        """Puts `drafts` into a slot's row; `shift` spoils (round, epoch, generation) of its tag."""
        tag = (round_number + shift[0], int(self._epoch_S[slot]) + shift[1], GENERATION + shift[2])
        self._tokens_SK[slot, : len(drafts)] = torch.tensor(drafts, dtype=torch.int32)
        self._tag_S3[slot] = torch.tensor(tag)


class Breaking:
    """Drafts a token that is no text, so that no grammar allows it."""

    def __init__(self, rig: Rig) -> None:
        self._mailbox = Mailbox(rig)

    def draft(self, plan: Plan) -> bool:
        """The same token for every row of every round."""
        for slot in plan.rows:
            self._mailbox.write(slot, plan.number, [WRONG] * (plan.width - 1))
        return True


class Perfect:
    """Knows what every request will say (`truth`: prompt and output by request id)."""

    def __init__(self, rig: Rig, truth: Mapping[str, Sequence[int]]) -> None:
        self._rig, self._truth, self._mailbox = rig, truth, Mailbox(rig)
        self._length_S = rig.arena.tensor(attach.LENGTH)

    def next_tokens(self, slot: int, count: int) -> list[int]:
        """The tokens after a slot's anchor; zeros past the end of what is known."""
        start = int(self._length_S[slot]) + 1
        known = list(self._truth[self._rig.request_of_slot[slot]][start : start + count])
        return known + [0] * (count - len(known))

    def draft(self, plan: Plan) -> bool:
        """Drafts the truth."""
        for slot in plan.rows:
            self._mailbox.write(slot, plan.number, self.next_tokens(slot, plan.width - 1))
        return True


class Adversarial:
    """Mixes the truth with wrong ids, ids out of range, stale tags, foreign epochs and generations, and silence."""

    def __init__(self, rig: Rig, truth: Mapping[str, Sequence[int]], seed: int) -> None:
        self._perfect, self._mailbox = Perfect(rig, truth), Mailbox(rig)
        self._random = random.Random(seed)
        self._vocab = rig.model.spec.vocab_size

    def draft(self, plan: Plan) -> bool:
        """Writes something else for every row of every round."""
        for slot in plan.rows:
            drafts = self._perfect.next_tokens(slot, plan.width - 1)
            self._spoil(drafts)
            self._mailbox.write(slot, plan.number, drafts, self._random.choice(_SHIFTS))
        return self._random.random() > 0.05

    def _spoil(self, drafts: list[int]) -> None:
        kind = self._random.randrange(5)
        place = self._random.randrange(len(drafts))
        if kind == 1:
            drafts[place] = self._random.randrange(self._vocab)
        elif kind == 2:
            drafts[place] = self._random.choice((-1, -(2**31), self._vocab, 2**31 - 1))
        elif kind == 3:
            self._random.shuffle(drafts)
        elif kind == 4:
            drafts[:] = [0] * len(drafts)


_SHIFTS = ((0, 0, 0),) * 5 + ((-1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (1, 0, 0))


def perfect(truth: Mapping[str, Sequence[int]]) -> ProposerFactory:
    """A proposer that is always right."""

    def build(rig: Rig) -> Proposer:
        return Perfect(rig, truth)

    return build


def adversarial(truth: Mapping[str, Sequence[int]], seed: int) -> ProposerFactory:
    """A proposer that is wrong in every way a mailbox allows."""

    def build(rig: Rig) -> Proposer:
        return Adversarial(rig, truth, seed)

    return build
