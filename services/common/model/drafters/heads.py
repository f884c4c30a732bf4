"""How drafters choose tokens out of the hidden states of a block."""

from typing import Protocol

import torch
from torch import Tensor

from services.common.kernels.argmax_token import argmax_of_product, argmax_token, top_of_groups, top_of_product
from services.common.kernels.linear import linear
from services.common.kernels.linear.weight import Weight
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.nodes import CANDIDATES, COUPLED_SURENESS, Candidates
from services.common.model.drafters.spec import DrafterSpec
from services.common.model.drafters.vocabulary import Vocabulary


class DraftHead(Protocol):
    """Chooses the drafts of a block."""

    sharpness: float
    """Factor on the logits of rows that are coupled to the target's draw."""

    def narrow(self, candidates: int) -> None:
        """Choose each draft among so many tokens that are the best without the one before, where others count too."""
        ...

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """Return tokens [B, K] of the target's vocabulary, int64; `head` is what scores rows of hidden states.

        Without a coupling they are the most likely ones, else those that the target draws with the highest chance.
        """
        ...

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Return the best tokens of every position; what `choose` would take is among them, unless that is narrowed."""
        ...


class ArgmaxHead:
    """The best token of every row by itself."""

    sharpness = 1.3
    """Logits of later rows are too flat: they average over possible predecessors. Chosen on held-out text."""

    def __init__(self, spec: DrafterSpec, vocabulary: Vocabulary) -> None:
        self._spec = spec
        self._vocabulary = vocabulary

    def narrow(self, candidates: int) -> None:
        """The token before does not count."""

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """One product over flat rows, because a strided batch would read the head once for each sequence."""
        count = hidden_BKD.shape[1]
        rows_RD = hidden_BKD.reshape(-1, hidden_BKD.shape[-1])
        coupling = None if coupling is None else self._vocabulary.coupling(coupling)
        if coupling is None or coupling.draws is not None:
            # A scale above 0 and a bound keep the order; rows that have them are not seeded.
            best_R = argmax_of_product(rows_RD, head, None if coupling is None else coupling.draws)
        else:
            best_R = argmax_token(coupling.apply(scaled_logits(rows_RD, head, self._spec), count))
        best_BK = best_R.view(-1, count)
        return best_BK if self._vocabulary.whole else self._vocabulary.tokens(best_BK)

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Each position by itself."""
        most = min(CANDIDATES, len(head))
        own = None if coupling is None else self._vocabulary.coupling(coupling)
        ids_BKC, values_BKC = best_of(hidden_BKD, head, most, self._spec, own)
        return Candidates(self._vocabulary.tokens(ids_BKC), log_chances(values_BKC[:, :, None], coupling))


def log_chances(scores_BKPC: Tensor, coupling: Coupling | None) -> Tensor:
    """Return the log-probabilities of candidates among themselves; scores of rows that draw are trusted less."""
    if coupling is not None:
        scores_BKPC = scores_BKPC * trust(coupling)[:, None, None, None]
    wide = torch.float64 if scores_BKPC.dtype == torch.float64 else torch.float32
    return scores_BKPC.log_softmax(-1, dtype=wide)


def trust(coupling: Coupling) -> Tensor:
    """Return the factor [B] on scores of rows that draw."""
    return 1.0 - (1.0 - COUPLED_SURENESS) * coupling.weight_B


def best_of(
    hidden_BKD: Tensor, head: Weight, count: int, spec: DrafterSpec, coupling: Coupling | None
) -> tuple[Tensor, Tensor]:
    """Return the best entries of each position by itself [B, K, count], in no order, and their scores."""
    batch, drafts, width = hidden_BKD.shape
    rows_RD = hidden_BKD.reshape(-1, width)
    if coupling is None or coupling.draws is not None:
        values_RC, ids_RC = top_of_product(rows_RD, head, count, None if coupling is None else coupling.draws)
        values_RC = bounded(values_RC, spec)  # the order stays
    else:
        values_RC, ids_RC = top_of_groups(coupling.apply(scaled_logits(rows_RD, head, spec), drafts), count)
    return ids_RC.view(batch, drafts, -1), values_RC.view(batch, drafts, -1)


def scaled_logits(rows_RD: Tensor, head: Weight, spec: DrafterSpec) -> Tensor:
    """Return the logits [R, V] of rows as the checkpoint defines them: multiplied, then bounded."""
    return bounded(linear(rows_RD, head), spec)


def bounded(logits: Tensor, spec: DrafterSpec) -> Tensor:
    """Return logits of any shape as the checkpoint defines them: multiplied, then bounded."""
    if spec.logit_scale != 1.0:
        logits = logits * spec.logit_scale
    return (logits / spec.logit_cap).tanh() * spec.logit_cap if spec.logit_cap else logits
