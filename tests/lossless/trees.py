"""Proposers that write trees into the real mailbox: the truth among wrong siblings, or what is wrong in every way."""

import random
from collections.abc import Mapping, Sequence

import torch

from services.common.pair import attach
from services.target.core.plan import Plan
from tests.lossless.proposers import Mailbox, Perfect
from tests.lossless.rig import Proposer, ProposerFactory, Rig

Tree = tuple[list[int], list[int]]


class Scattered:
    """Knows what requests will say, and hides it in trees of random shape, often behind wrong siblings."""

    def __init__(self, rig: Rig, truth: Mapping[str, Sequence[int]], seed: int) -> None:
        self._perfect, self._mailbox = Perfect(rig, truth), Mailbox(rig)
        self._parents_SK = rig.arena.tensor(attach.PARENTS)
        self.random = random.Random(seed)
        self.vocab = rig.model.spec.vocab_size

    def draft(self, plan: Plan) -> bool:
        """Writes a tree for every row; of a round of chains the truth, beside parents that say nothing."""
        for slot in plan.rows:
            truth = self._perfect.next_tokens(slot, plan.width - 1)
            tokens, parents = self.tree(truth)
            tokens = tokens if plan.nodes else list(truth)
            self._parents_SK[slot, : len(parents)] = torch.tensor(parents, dtype=torch.int32)
            self._mailbox.write(slot, plan.number, tokens)
        return True

    def tree(self, truth: Sequence[int]) -> Tree:
        """Grows a tree of as many nodes as there are tokens of the truth; its path has some of them, in any rows."""
        pick, last, known = self.random, 0, 0
        tokens: list[int] = []
        parents: list[int] = []
        for row in range(1, len(truth) + 1):
            if pick.random() < 0.5:
                tokens.append(truth[known])
                parents.append(last)
                last, known = row, known + 1
            else:
                parents.append(pick.choice((last, pick.randrange(row))))
                tokens.append(self._wrong(truth[known]))
        return tokens, parents

    def _wrong(self, token: int) -> int:
        return (token + 1 + self.random.randrange(self.vocab - 1)) % self.vocab


class Broken(Scattered):
    """Spoils about half of the trees: parents out of range, behind their nodes, and themselves; twins; wrong tokens."""

    def tree(self, truth: Sequence[int]) -> Tree:
        """Grows a tree, then spoils it."""
        tokens, parents = super().tree(truth)
        pick, place = self.random, self.random.randrange(len(truth))
        kind = pick.randrange(8)
        if kind == 0:
            parents[place] = pick.choice((-1, place + 1, place + 2, len(truth) + 1, 2**31 - 1, -(2**31)))
        elif kind == 1:
            parents[place] = pick.randrange(place + 1)
        elif kind == 2:
            tokens[place] = pick.choice((-1, self.vocab, 2**31 - 1, pick.randrange(self.vocab)))
        elif kind == 3:
            parents[place], tokens[place] = parents[place - 1] if place else 0, tokens[place - 1]
        return tokens, parents


def scattered(truth: Mapping[str, Sequence[int]], seed: int) -> ProposerFactory:
    """Trees that hold the truth somewhere."""

    def build(rig: Rig) -> Proposer:
        return Scattered(rig, truth, seed)

    return build


def broken(truth: Mapping[str, Sequence[int]], seed: int) -> ProposerFactory:
    """Trees that are wrong in every way."""

    def build(rig: Rig) -> Proposer:
        return Broken(rig, truth, seed)

    return build
