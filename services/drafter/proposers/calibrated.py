"""What a checkpoint's candidates are worth, as it turned out: a correction for each position, learned while serving.

A head says how likely its candidates of a position are. Together they are as likely as one of them is right. What
stands behind an anchor some rounds later is what the target committed, whatever was drafted: so each text tells for
how many positions one was right. Scores are multiplied by the share that was right over the share that was claimed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from services.common.model.drafters.nodes import Candidates, chain_of, choose_nodes
from services.drafter.arena_view import ArenaView
from services.drafter.proposers.cascade import Learned

_FORGET = 0.998
"""An observation of a position counts for some five hundred later ones."""
_DOUBT = 8.0
"""Observations that are thought to have been as claimed."""
_MOST = 8.0
"""A correction is at most this, or one over it."""


class Calibration:
    """Two numbers a position: how often a candidate was right, and how often one was said to be."""

    def __init__(self) -> None:
        self._right, self._claimed = list[float](), list[float]()

    def learn(self, position: int, claimed: float, right: bool) -> None:
        """Note a position that a text reached: how likely its candidates were said to be, and whether one was right."""
        while len(self._right) <= position:
            self._right.append(_DOUBT)
            self._claimed.append(_DOUBT)
        self._right[position] = self._right[position] * _FORGET + right
        self._claimed[position] = self._claimed[position] * _FORGET + claimed

    def corrections(self, positions: int) -> list[float]:
        """The logarithms of what scores of the first positions are multiplied by."""
        known = zip(self._right, self._claimed, strict=True)
        learned = [min(_MOST, max(1.0 / _MOST, right / max(claimed, 1e-6))) for right, claimed in known]
        return [math.log(one) for one in learned[:positions]] + [0.0] * (positions - len(learned))

    def corrected(self, found: Candidates) -> Candidates:
        """Candidates whose scores are as likely as such ones were."""
        corrections_K = found.scores_BKPC.new_tensor(self.corrections(found.ids_BKC.shape[1]))
        return Candidates(found.ids_BKC, (found.scores_BKPC + corrections_K[:, None, None]).clamp_max(0.0))

    def follow(self, ids_KC: Tensor, scores_KPC: Tensor, text: Sequence[int]) -> None:
        """Learn from a text that begins where the candidates do, up to the first token that was none of them."""
        claimed_KP, before = scores_KPC.exp().sum(-1).tolist(), 0
        for position, (token, ids, claimed) in enumerate(zip(text, ids_KC.tolist(), claimed_KP, strict=False)):
            right = token in ids
            self.learn(position, claimed[before if len(claimed) > 1 else 0], right)
            if not right:
                return
            before = ids.index(token)


@dataclass(frozen=True)
class _Asked:
    """What was said of a request when its text had so many tokens: candidates [K, C] and their scores [K, P, C]."""

    epoch: int
    length: int
    ids_KC: Tensor
    scores_KPC: Tensor


class CalibratedProposer:
    """Corrects the scores of another proposer's candidates. Chains, which follow no score, are the other's."""

    reads_memory = True

    def __init__(self, other: Learned) -> None:
        self._other, self._calibration, self._asked = other, Calibration(), dict[int, _Asked]()

    @property
    def kind(self) -> str:
        """That of the other."""
        return self._other.kind

    @property
    def revision(self) -> str:
        """That of the other."""
        return self._other.revision

    @property
    def max_draft(self) -> int | None:
        """That of the other."""
        return self._other.max_draft

    @property
    def draws(self) -> bool:
        """As the other."""
        return self._other.draws

    def check(self, shared: ArenaView) -> None:
        """As the other.

        Raises:
            ValueError: as the other.
        """
        self._asked.clear()
        self._other.check(shared)

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens, the other's."""
        return self._other.propose(shared, rows_B, width)

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """The best tree by corrected scores; chains where the other ranks nothing."""
        ranked = self.ranked(shared, rows_B, width)
        return chain_of(self.propose(shared, rows_B, width)) if ranked is None else choose_nodes(ranked, width - 1)

    def ranked(self, shared: ArenaView, rows_B: Tensor, width: int) -> Candidates | None:
        """The other's candidates with corrected scores; learns first from what the rows' texts have become."""
        found = self._other.ranked(shared, rows_B, width)
        if found is None:
            return None
        for line, slot in enumerate(rows_B.tolist()):
            epoch, length = int(shared.epoch_S[slot]), int(shared.history_length_S[slot])
            asked = self._asked.get(slot)
            if asked is not None and asked.epoch == epoch and asked.length < length:
                text = shared.history_SC[slot, asked.length : length].tolist()
                self._calibration.follow(asked.ids_KC, asked.scores_KPC, text)
            self._asked[slot] = _Asked(epoch, length, found.ids_BKC[line].clone(), found.scores_BKPC[line].clone())
        return self._calibration.corrected(found)
