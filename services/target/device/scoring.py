"""Scores the positions of prompts: how likely the model found each of their tokens.

A pack that holds such a prompt runs outside of the captured steps, because it needs the hidden states of all rows. They
are multiplied by the head a few at a time, so that scores take little memory.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.device.staging import to_host, upload
from services.common.kernels.accept import logprobs
from services.target.core.plan import PositionLogprobs, PromptScores
from services.target.device.context import Pool
from services.target.device.packing import Pack, Segment
from services.target.device.state import HostSlot
from services.target.device.steps import Steps

ROWS_AT_ONCE = 64


class Scored(NamedTuple):
    """Scores of a segment on their way to the host: of `tokens`, the first at position `start`, and the best ones.

    The tensors `chosen_T`, `ids_TN` and `values_TN` hold those of a whole pack, the segment's from `first` on.
    """

    slot: int
    seat: HostSlot
    start: int
    tokens: tuple[int, ...]
    first: int
    chosen_T: Tensor
    ids_TN: Tensor
    values_TN: Tensor

    def told(self) -> PromptScores:
        """The same as plain numbers; the copies must be complete."""
        mine, asked = slice(self.first, self.first + len(self.tokens)), self.seat.spec.prompt_logprobs or 0
        ids = self.ids_TN[mine, :asked].tolist()
        values = self.values_TN[mine, :asked].tolist()
        positions = tuple(
            PositionLogprobs(chosen, tuple(zip(best, scores, strict=True)))
            for chosen, best, scores in zip(self.chosen_T[mine].tolist(), ids, values, strict=True)
        )
        return PromptScores(self.slot, self.seat.epoch, self.start, self.tokens, positions)


class Scorer:
    """Runs packs with prompts that are scored."""

    def __init__(self, pool: Pool, steps: Steps) -> None:
        self._pool, self._steps = pool, steps
        room_TV = pool.logits_TV
        self._at_once = ROWS_AT_ONCE if room_TV is None else min(ROWS_AT_ONCE, len(room_TV))

    def run(self, pack: Pack) -> list[Scored]:
        """Computes a pack; the scores of its prompts are enqueued when it returns."""
        hidden_TD = self._steps.run_scored(pack)
        wanted = [
            (index, segment, seat)
            for index, segment in enumerate(pack.segments)
            if (seat := self._pool.state.seat(segment.slot)).spec.scored
        ]
        nexts = [_behind(segment, seat) for _, segment, seat in wanted]
        rows = [
            row
            for (index, _, _), tokens in zip(wanted, nexts, strict=True)
            for row in range(index * pack.shape.width, index * pack.shape.width + len(tokens))
        ]
        tables = self._scores(hidden_TD, rows, [token for tokens in nexts for token in tokens])
        found, first = [], 0
        for (_, segment, seat), tokens in zip(wanted, nexts, strict=True):
            found.append(Scored(segment.slot, seat, segment.start + 1, tokens, first, *tables))
            first += len(tokens)
        return found

    def _scores(self, hidden_TD: Tensor, rows: list[int], tokens: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the tokens behind some rows [T], and ids and values of the best ones [T, N]."""
        most, device = self._pool.settings.max_logprobs, self._pool.device
        pieces: list[tuple[Tensor, Tensor, Tensor]] = []
        for begin in range(0, len(rows), self._at_once):
            some = slice(begin, begin + self._at_once)
            piece_RD = hidden_TD.index_select(0, upload(rows[some], torch.int64, device))
            logits_RV = self._pool.logits(piece_RD)
            pieces.append(logprobs(logits_RV[:, None], upload(tokens[some], torch.int64, device)[:, None], most))
        if not pieces:  # the last token of a prompt alone
            return torch.empty(0), torch.empty(0, most, dtype=torch.int64), torch.empty(0, most)
        chosen, ids, values = (torch.cat(table)[:, 0] for table in zip(*pieces, strict=True))
        return to_host(chosen), to_host(ids), to_host(values)


def _behind(segment: Segment, seat: HostSlot) -> tuple[int, ...]:
    """The tokens of the prompt that follow on those of a segment, one for each; its last token has none behind it."""
    return seat.spec.token_ids[segment.start + 1 : segment.start + 1 + len(segment.token_ids)]
