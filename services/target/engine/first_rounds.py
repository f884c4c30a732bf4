"""Judges a drafter by its first rounds: one that is never right was made for another model, or is read wrongly."""

import logging

_LOG = logging.getLogger(__name__)
ROUNDS, LEAST = 64, 0.05
"""Rounds with drafts, and the share of them that is accepted at least: a drafter that reads the model has far more."""
REMEDY = "drafts are hardly ever right: is the drafter this model's, and does its anchor predict (sample_from_anchor)?"


class FirstRounds:
    """Counts drafts of each attachment until it is judged; drafts without a checkpoint are not."""

    def __init__(self, reads: bool) -> None:
        """`reads` says that the drafter has a checkpoint that reads the model."""
        self._reads = reads
        self._generation = self._rounds = self._drafted = self._accepted = 0

    def note(self, generation: int, drafted: int, accepted: int) -> None:
        """A round with so many drafts in all, of which so many were right."""
        if generation != self._generation:
            self._generation, self._rounds, self._drafted, self._accepted = generation, 0, 0, 0
        if not (self._reads and drafted) or self._rounds == ROUNDS:
            return
        self._rounds, self._drafted, self._accepted = (
            self._rounds + 1,
            self._drafted + drafted,
            self._accepted + accepted,
        )
        if self._rounds == ROUNDS and self._accepted < LEAST * self._drafted:
            told = {"generation": generation, "drafted": self._drafted, "accepted": self._accepted}
            _LOG.warning(REMEDY, extra=told)
