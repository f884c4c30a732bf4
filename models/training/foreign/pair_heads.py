"""Heads that score a drafted row's tokens by the token before: what DFlash 2 and DSpark have beyond DFlash.

They learn beside the rows, on a sample of them. The token before is the text's, as drafts count behind right ones only.
Each has the loss of rows, the likeliest tokens of rows, and the candidates of blocks as they are served.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.foreign.loss import Labels
from services.common.model.drafters.heads import log_chances
from services.common.model.drafters.nodes import CANDIDATES, Candidates


class Scored(NamedTuple):
    """Final-normed drafted rows [rows, hidden], the head's table [vocabulary, hidden], the tokens before [rows]."""

    rows: Tensor
    table: Tensor
    before: Tensor


class ArgmaxPairs:
    """No head beyond the table: the token before does not count."""

    def best(self, scored: Scored) -> Tensor:
        """Return the likeliest tokens."""
        return (scored.rows @ scored.table.T).argmax(-1)

    def rank(self, rows: Tensor, table: Tensor, anchors: Tensor) -> Candidates:
        """Return the likeliest tokens of each row by itself."""
        values, ids = (rows @ table.T).float().topk(min(CANDIDATES, len(table)), -1)
        return Candidates(ids, log_chances(values[:, :, None], None))


class Selector(nn.Module):
    """DFlash 2's: of each row's best tokens, logits and a product of three codes: before, row, candidate."""

    def __init__(self, vocab: int, width: int, rank: int, candidates: int) -> None:
        super().__init__()
        self.candidates = min(candidates, vocab)
        self.predecessor_codebook = nn.Parameter(0.5 * torch.randn(vocab, rank))
        # Nothing is added at first, and the gradient of this one is not zero.
        self.successor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.hidden_projection = nn.Linear(width, rank, bias=False)
        nn.init.normal_(self.hidden_projection.weight, std=width**-0.5)

    def loss(self, scored: Scored, labels: Labels, temperature: float) -> Tensor:
        """Cross-entropy over the best tokens; a greedy text's token is among them always, for the loss alone."""
        with torch.no_grad():
            told = (labels.normed @ scored.table.T).float() / temperature
            ids = self._best_ids(scored)
            ids[:, -1] = torch.where((ids == labels.tokens[:, None]).any(1), ids[:, -1], labels.tokens)
            drawn = (told.gather(1, ids) - told.logsumexp(-1, keepdim=True)).exp()
            wanted = torch.where(labels.greedy[:, None], (ids == labels.tokens[:, None]).float(), drawn)
        codes = F.embedding(ids, scored.table).to(scored.rows.dtype)
        logits = torch.matmul(codes, scored.rows[:, :, None])[:, :, 0].float()
        own = ((logits + self._pairs(scored, ids)) / temperature).log_softmax(-1)
        return -((wanted * own).sum(-1) * labels.weights).sum() / labels.weights.sum().clamp(min=1e-6)

    def best(self, scored: Scored) -> Tensor:
        """Return the likeliest tokens behind those before."""
        ids = self._best_ids(scored)
        scores = (scored.rows @ scored.table.T).gather(1, ids).float() + self._pairs(scored, ids)
        return ids.gather(1, scores.argmax(-1, keepdim=True))[:, 0]

    def rank(self, rows: Tensor, table: Tensor, anchors: Tensor) -> Candidates:
        """Return each candidate by each of the position before."""
        logits = rows @ table.T
        ids = logits.topk(self.candidates, -1).indices.sort(-1).values
        first = anchors[:, None, None].expand(-1, 1, self.candidates)
        before = F.embedding(torch.cat((first, ids[:, :-1]), 1), self.predecessor_codebook)
        coded = before * self.hidden_projection(rows.float())[:, :, None]
        pairs = coded @ F.embedding(ids, self.successor_codebook).transpose(-1, -2)
        return Candidates(ids, log_chances(logits.gather(-1, ids).float()[:, :, None] + pairs, None))

    def _best_ids(self, scored: Scored) -> Tensor:
        """Return the best tokens [rows, candidates] in the order of their ids, as they are served."""
        with torch.no_grad():
            return (scored.rows @ scored.table.T).topk(self.candidates, -1).indices.sort(-1).values

    def _pairs(self, scored: Scored, ids: Tensor) -> Tensor:
        """Return what each of the candidates [rows, candidates] gets for the token before."""
        before = F.embedding(scored.before, self.predecessor_codebook)
        coded = before * self.hidden_projection(scored.rows.float())
        return torch.matmul(F.embedding(ids, self.successor_codebook), coded[:, :, None])[:, :, 0]


class Markov(nn.Module):
    """DSpark's: a bias of low rank on all logits, by the token before, and a head that tells how sure a draft is."""

    def __init__(self, vocab: int, width: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)
        self.confidence = nn.Linear(width + rank, 1)
        nn.init.normal_(self.markov_w1.weight, std=0.5)
        for weight in (self.markov_w2.weight, self.confidence.weight, self.confidence.bias):
            nn.init.zeros_(weight)

    def loss(self, scored: Scored, labels: Labels, temperature: float) -> Tensor:
        """A tenth of the cross-entropy, nine tenths of the distance of distributions, and that of the confidence."""
        told = (labels.normed @ scored.table.T).float() / temperature
        own = (self._logits(scored) / temperature).softmax(-1)
        token = F.one_hot(labels.tokens, own.shape[-1]).to(own.dtype)
        wanted = torch.where(labels.greedy[:, None], token, told.softmax(-1))
        entropy = -(wanted * own.clamp(min=1e-9).log()).sum(-1)
        distance = (own - wanted).abs().sum(-1)
        sure = self._confidence(scored)
        doubt = F.binary_cross_entropy_with_logits(sure, (1.0 - 0.5 * distance).detach(), reduction="none")
        losses = 0.1 * entropy + 0.9 * distance + doubt
        return (losses * labels.weights).sum() / labels.weights.sum().clamp(min=1e-6)

    def best(self, scored: Scored) -> Tensor:
        """Return the likeliest tokens behind those before."""
        return self._logits(scored).argmax(-1)

    def rank(self, rows: Tensor, table: Tensor, anchors: Tensor) -> Candidates:
        """Candidates are the best behind the chain's draft, each scored by each candidate of the position before."""
        most = min(CANDIDATES, len(table))
        before, found, scored, sure = anchors[:, None].expand(-1, most), [], [], []
        for row in rows.unbind(1):
            codes = self.markov_w1(before)
            sure.append(self.confidence(torch.cat((row.float()[:, None].expand(-1, most, -1), codes), -1)))
            scores = (row @ table.T).float()[:, None] + self.markov_w2(codes)
            before = scores[:, 0].topk(most, -1).indices
            scored.append(scores.gather(2, before[:, None].expand(-1, most, -1)))
            found.append(before)
        chances = log_chances(torch.stack(scored, 1), None) + F.logsigmoid(torch.stack(sure, 1))
        return Candidates(torch.stack(found, 1), chances)

    def _logits(self, scored: Scored) -> Tensor:
        logits: Tensor = (scored.rows @ scored.table.T).float() + self.markov_w2(self.markov_w1(scored.before))
        return logits

    def _confidence(self, scored: Scored) -> Tensor:
        inputs = torch.cat((scored.rows.float(), self.markov_w1(scored.before)), -1)
        told: Tensor = self.confidence(inputs)[:, 0]
        return told
