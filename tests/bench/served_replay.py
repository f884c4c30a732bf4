"""Replays the rounds of answers that a pair served: the product's own drafter over their text, in the same numerics.

What a target says depends on no draft. So its text is taken as served, the draft context is computed from it in one
forward, and the drafter is asked where a round begins, with the noise of the request's own draws.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from services.common.device.noise import gumbel
from services.common.kernels.linear.weight import Weight
from services.common.kernels.prepare_span import seat_block
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.nodes import choose_nodes
from services.common.model.states.states import Part, Rows
from services.drafter.proposers.calibrated import Calibration
from tests.bench.nodes_offline import BLOCK, Asked, Pair, Text

_POSITIONS = 4096
"""More than any answer of a bench has."""
Inputs: TypeAlias = tuple[Tensor, Rows, Tensor, Tensor, Weight, int, Coupling | None]
"""What a block drafts from."""


class ServedReplay(Asked):
    """A pair in float32, with a drafter's weights in eight bits where that is asked for."""

    def __init__(self, target: Path, drafter: Path, int8: bool = False, calibrated: bool = False) -> None:
        """`int8` and `calibrated` should be what the drafter that served had."""
        super().__init__(Pair("served", target, drafter, []), int8, calibrated)
        self._calibration = Calibration() if calibrated else None
        self._block.reach(_POSITIONS)

    @torch.inference_mode()
    def rounds(self, text: Text, drafts: int, foreign: Text | None = None) -> int:
        """Return in how many rounds of so many drafts a text is written, from its first token behind the prompt on.

        `foreign` is a text whose context stands in place of its own, over and over where it is shorter: the control.
        """

        def right(inputs: Inputs, behind: Sequence[int]) -> int:
            return _right(self._block.propose(*inputs)[0].tolist(), behind)

        return self._rounds(text, drafts, foreign, right)

    @torch.inference_mode()
    def tree_rounds(self, text: Text, nodes: int, foreign: Text | None = None) -> int:
        """Return the same of rounds of trees of so many nodes, the anchor among them."""

        def right(inputs: Inputs, behind: Sequence[int]) -> int:
            found = self._block.rank(*inputs)
            corrected = found if self._calibration is None else self._calibration.corrected(found)
            tokens_1K, parents_1K = choose_nodes(corrected, nodes - 1)
            if self._calibration is not None:
                self._calibration.follow(found.ids_BKC[0], found.scores_BKPC[0], behind)
            return _followed(tokens_1K[0].tolist(), parents_1K[0].tolist(), behind)

        return self._rounds(text, min(nodes - 1, self._block.spec.most_drafts), foreign, right)

    def _rounds(
        self, text: Text, depth: int, foreign: Text | None, right: Callable[[Inputs, Sequence[int]], int]
    ) -> int:
        table_1N = self._table_of(text)
        draft_kv = self._written(text if foreign is None else _as_long(foreign, len(text.ids)), table_1N)
        rounds, anchor = 0, text.start
        while anchor < len(text.ids) - 1:
            rounds += 1
            anchor += 1 + right(self._inputs(text, anchor, depth, table_1N, draft_kv), text.ids[anchor + 1 :])
        return rounds

    def _inputs(self, text: Text, anchor: int, depth: int, table_1N: Tensor, draft_kv: Tensor) -> Inputs:
        """Return what the block needs to draft so many positions behind an anchor."""
        spec, anchor_1, row_1 = self._block.spec, torch.tensor([anchor]), torch.zeros(1, dtype=torch.int32)
        block, mask = spec.block_for(depth), spec.mask_token_id
        ids_1W, span = seat_block(row_1, torch.tensor([text.ids[anchor]]), anchor_1, table_1N, block, BLOCK, mask)
        return ids_1W, Rows(Part(span, row_1)), draft_kv, *self._tables, depth, self._coupling(text, anchor, depth)

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


def _followed(tokens: Sequence[int], parents: Sequence[int], truth: Sequence[int]) -> int:
    """Return how many nodes of a tree the text follows from the anchor on."""
    row = found = 0
    while found < len(truth):
        every = zip(tokens, parents, strict=True)
        child = next((place for place, each in enumerate(every, 1) if each == (truth[found], row)), 0)
        if not child:
            break
        row, found = child, found + 1
    return found
