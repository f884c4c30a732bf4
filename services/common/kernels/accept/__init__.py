"""Sample, accept, commit: makes tokens of a sequence from the logits of a span, at every temperature.

Row j of a span chooses y_j = argmax(s_j + g_j): s are the processed logits, g is the noise of the request's seed and
position (none when greedy). Draft i is accepted while it equals y_i; in a tree the walk goes from row to the child that
equals its y, while there is one. The call commits y up to the first draft that
differs, cut at the first stop id, token limit or context limit. As y depends on prefix, seed and position alone, the
text is that of plain decoding (I1).
"""

from typing import Literal

import torch
from torch import Tensor

from services.common.kernels.accept import reference
from services.common.kernels.accept.state import (
    End,
    Entrant,
    RoundResult,
    SlotParams,
    SlotState,
    flat_cells,
    mask_words,
)
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import TileBest
from services.common.kernels.nodes import Nodes

__all__ = ["End", "Entrant", "RoundResult", "SlotParams", "SlotState", "accept", "flat_cells", "logprobs", "mask_words"]

Mode = Literal["greedy", "full"]


def accept(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rows_B: Tensor,
    state: SlotState,
    result: RoundResult,
    noise_BWV: Tensor | None = None,
    mode: Mode = "full",
    best: TileBest | None = None,
    nodes: Nodes | None = None,
) -> None:
    """Choose, accept and commit for every row of a round.

    Args:
        logits_BWV: raw logits, float32 or wider on the CPU, float32 or bfloat16 on a GPU; row j predicts position
            length + 1 + j.
        drafts_BK: drafts after the anchor, K = W - 1; -1 where there is none.
        rows_B: slot of each row; inactive slots (the pad slot among them) commit nothing and stay untouched.
        state: of all slots; length, anchor, generated, counts, history and active move.
        result: receives what was committed, row by row.
        noise_BWV: Gumbel noise, for the CPU path only; made from state's seeds when None and some row samples. The
            GPU path makes its own, in float32.
        mode: "greedy" when every row is plainly greedy (no temperature, no processor, no mask); "full" is always right.
        best: the best of each tile of the logits, where their product left it. On a GPU greedy rows read it instead.
        nodes: trees that the rows are; chains without.
    """
    if on_kernel(logits_BWV):
        from services.common.kernels.accept import kernel

        kernel.accept(logits_BWV, drafts_BK, rows_B, state, result, mode, best, nodes)
    else:
        reference.accept(logits_BWV, drafts_BK, rows_B, state, result, noise_BWV, mode, nodes)


def logprobs(logits_BWV: Tensor, tokens_BW: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities of the raw logits: of the chosen tokens [B, W], and the `top` ids and values [B, W, n].

    Tokens below 0 (padding of a round's result) are read as token 0. On a GPU equal logits are listed by id.
    """
    if on_kernel(logits_BWV) and logits_BWV.dtype != torch.float64:
        from services.common.kernels.accept import logprob

        return logprob.logprobs(logits_BWV, tokens_BW, top)
    wide = torch.float64 if logits_BWV.dtype == torch.float64 else torch.float32
    log_BWV = torch.log_softmax(logits_BWV, -1, dtype=wide)
    chosen_BW = log_BWV.gather(-1, tokens_BW.clamp(min=0)[..., None])[..., 0]
    values_BWn, ids_BWn = log_BWV.topk(top, -1)
    return chosen_BW, ids_BWn, values_BWn
