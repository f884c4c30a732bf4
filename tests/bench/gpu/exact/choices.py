"""Tokens chosen from the same logits one by one, and from wide rounds of any batch whose drafts are right."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.accept import Entrant, RoundResult, SlotParams, SlotState, accept
from tests.bench.gpu.exact.row_kernels import Numbers
from tests.bench.gpu.exact.rows_alone import Tally

PROMPT, LIMIT = (5, 6, 7), 1 << 12
BATCHES = (1, 3, 8, 17, 32, 64, 128)
WIDTHS = (1, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Kind:
    """How requests choose."""

    name: str
    sampling: dict[str, float]
    greedy: bool = False

    def params(self, slot: int, vocab: int) -> SlotParams:
        """Of one slot; every slot has a seed of its own."""
        whole = {name: int(value) if name == "top_k" else value for name, value in self.sampling.items()}
        bias = ((vocab // 3, 1.5),) if "presence_penalty" in whole else ()
        return SlotParams(max_tokens=LIMIT, context_limit=LIMIT, seed=slot + 1, logit_bias=bias, **whole)  # type: ignore[arg-type]


KINDS = (
    Kind("greedy", {}, greedy=True),
    Kind("T = 0.8", {"temperature": 0.8}),
    Kind("top-k, top-p, min-p", {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.02}),
    Kind("penalties", {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.2, "presence_penalty": 0.4}),
)


def choice_tallies(vocab: int, numbers: Numbers, slots: int, width: int) -> Iterator[Tally]:
    """One tally for each kind of sampling."""
    logits_SWV = numbers.rows(slots, width, vocab).mul_(3.0)
    state = SlotState.allocate(slots, vocab, LIMIT, device=numbers.device)
    for kind in KINDS:
        yield _tally(kind, state, logits_SWV)


def _tally(kind: Kind, state: SlotState, logits_SWV: Tensor) -> Tally:
    tally, (slots, widest, vocab) = Tally(f"accept: {kind.name}"), logits_SWV.shape
    every = list(range(slots))
    _admit(kind, state, every, vocab)
    truth_SW = torch.cat([_committed(kind, state, every, logits_SWV[:, j : j + 1]) for j in range(widest)], 1)
    for batch in (batch for batch in BATCHES if batch <= slots):
        for width in (width for width in WIDTHS if width <= widest):
            rows = random.Random(batch + width).sample(every, batch)
            _admit(kind, state, rows, vocab)
            got = _committed(kind, state, rows, logits_SWV[rows, :width], truth_SW[rows, : width - 1])
            tally.add(f"batch {batch}, width {width}", got, truth_SW[rows, :width])
    return tally


def _admit(kind: Kind, state: SlotState, slots: Sequence[int], vocab: int) -> None:
    state.admit(*[Entrant(slot, kind.params(slot, vocab), PROMPT) for slot in slots])


def _committed(
    kind: Kind, state: SlotState, slots: Sequence[int], logits_BWV: Tensor, drafts_BK: Tensor | None = None
) -> Tensor:
    """The tokens of one round, [B, W]; -1 from the first draft on that was refused."""
    device, (batch, width, _) = logits_BWV.device, logits_BWV.shape
    if drafts_BK is None:
        drafts_BK = torch.empty(batch, 0, dtype=torch.int64, device=device)
    result = RoundResult.allocate(batch, width, device)
    rows_B = torch.tensor(slots, dtype=torch.int32, device=device)
    mode = "greedy" if kind.greedy else "full"
    accept(logits_BWV.contiguous(), drafts_BK.contiguous(), rows_B, state, result, mode=mode)  # type: ignore[arg-type]
    return result.tokens_BW.clone()
