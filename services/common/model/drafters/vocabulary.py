"""The tokens that a drafter scores: all of the target's, or a part of them in an order of its own."""

from dataclasses import replace

import torch
from torch import Tensor

from services.common.model.drafters.coupling import Coupling, SeededCoupling
from services.common.model.drafters.spec import DRAFT_TO_TARGET, AnyDrafterSpec
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import IntegerSource

_REMEDY = ": take another drafter, or n-gram drafts, which need no checkpoint"


class Vocabulary:
    """Turns what a head chooses into tokens of the target; without `ids_V` they are the same."""

    def __init__(self, ids_V: Tensor | None = None) -> None:
        """`ids_V` is the target's token of each entry, int64."""
        self.whole = ids_V is None
        self._ids_V = ids_V

    def tokens(self, entries: Tensor) -> Tensor:
        """Return the target's tokens of chosen entries, of any shape."""
        return entries if self._ids_V is None else self._ids_V.index_select(0, entries.flatten()).view(entries.shape)

    def coupling(self, coupling: Coupling) -> Coupling:
        """Return the noise of the entries alone."""
        if self._ids_V is None:
            return coupling
        if coupling.draws is not None:
            return SeededCoupling(coupling.draws._replace(tokens_V=self._ids_V))
        return replace(coupling, noise_BKV=coupling.noise_BKV.index_select(-1, self._ids_V))


def read_vocabulary(spec: AnyDrafterSpec, checkpoint: IntegerSource, device: torch.device) -> Vocabulary:
    """Read which tokens a head scores; the file tells how far each stands from its entry.

    Raises:
        ModelError: a token is none of the target's, or has two entries.
    """
    if not spec.draft_vocab:
        return Vocabulary()
    told = f"{checkpoint.folder}: tensor {DRAFT_TO_TARGET}"
    far_V, entries_V = checkpoint.read_integers(DRAFT_TO_TARGET, (spec.draft_vocab,)), torch.arange(spec.draft_vocab)
    if far_V.is_meta:
        return Vocabulary(far_V)  # a file that is not here yet
    ids_V = far_V + entries_V
    if len(ids_V) == spec.vocab_size and torch.equal(ids_V, entries_V):
        return Vocabulary()
    if spec.scores_all:
        raise ModelError(
            f"{told} is of an order of its own, and this kind scores the target's tokens as they are{_REMEDY}"
        )
    if not 0 <= int(ids_V.min()) <= int(ids_V.max()) < spec.vocab_size:
        raise ModelError(f"{told} names tokens outside of {spec.vocab_size}{_REMEDY}")
    if len(ids_V.unique()) != spec.draft_vocab:
        raise ModelError(f"{told} names a token twice{_REMEDY}")
    return Vocabulary(ids_V.to(device))
