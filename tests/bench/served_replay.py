"""Replays the rounds of answers that a pair served: the product's own drafter over their text, in the same numerics.

What a target says depends on no draft. So its text is taken as served, the draft context is computed from it in one
forward, and the drafter is asked where a round begins, with the noise of the request's own draws.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from services.common.device.noise import gumbel
from services.common.kernels.prepare_span import seat_block
from services.common.model.drafters.coupling import Coupling
from services.common.model.states.states import Part, Rows
from tests.bench.nodes_offline import BLOCK, Asked, Pair, Text

_POSITIONS = 4096
"""More than any answer of a bench has."""


class ServedReplay(Asked):
    """A pair in float32, with a drafter's weights in eight bits where that is asked for."""

    def __init__(self, target: Path, drafter: Path, int8: bool = False) -> None:
        """`int8` should be what the drafter that served had."""
        super().__init__(Pair("served", target, drafter, []), int8)
        self._block.reach(_POSITIONS)

    @torch.inference_mode()
    def rounds(self, text: Text, drafts: int, foreign: Text | None = None) -> int:
        """Return in how many rounds of so many drafts a text is written, from its first token behind the prompt on.

        `foreign` is a text whose context stands in place of its own, over and over where it is shorter: the control.
        """
        table_1N = self._table_of(text)
        draft_kv = self._written(text if foreign is None else _as_long(foreign, len(text.ids)), table_1N)
        rounds, anchor = 0, text.start
        while anchor < len(text.ids) - 1:
            rounds += 1
            anchor += 1 + _right(self._drafted(text, anchor, drafts, table_1N, draft_kv), text.ids[anchor + 1 :])
        return rounds

    def _drafted(self, text: Text, anchor: int, drafts: int, table_1N: Tensor, draft_kv: Tensor) -> list[int]:
        spec, anchor_1, row_1 = self._block.spec, torch.tensor([anchor]), torch.zeros(1, dtype=torch.int32)
        block, mask = spec.block_for(drafts), spec.mask_token_id
        ids_1W, span = seat_block(row_1, torch.tensor([text.ids[anchor]]), anchor_1, table_1N, block, BLOCK, mask)
        rows, coupling = Rows(Part(span, row_1)), self._coupling(text, anchor, drafts)
        chosen: list[int] = self._block.propose(ids_1W, rows, draft_kv, *self._tables, drafts, coupling)[0].tolist()
        return chosen

    def _coupling(self, text: Text, anchor: int, drafts: int) -> Coupling | None:
        """Return the noise that the target drew with at the positions of the drafts; none where it was greedy."""
        if text.sampling.greedy:
            return None
        positions_1K = anchor + torch.arange(1, drafts + 1)[None]
        noise_1KV = gumbel(torch.tensor([text.sampling.seed]), positions_1K, self._target.spec.vocab_size)
        scale_1 = torch.tensor([self._block.sharpness / text.sampling.temperature])
        return Coupling(noise_1KV, scale_1, torch.ones(1))


def _as_long(text: Text, length: int) -> Text:
    """Return a text repeated or cut to a length."""
    times = -(-length // len(text.ids))
    return Text((text.ids * times)[:length], text.start, text.sampling)


def _right(drafted: Sequence[int], truth: Sequence[int]) -> int:
    """Return how many drafts the text has before the first that it has not."""
    pairs = zip(drafted, truth, strict=False)
    return next((place for place, (draft, token) in enumerate(pairs) if draft != token), min(len(drafted), len(truth)))
