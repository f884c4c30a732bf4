"""Sample, accept, commit: makes tokens of a sequence from the logits of a span, at every temperature.

Row j of a span chooses y_j = argmax(s_j + g_j): s are the processed logits, g is the noise of the request's seed and
position (none when greedy). Draft i is accepted while it equals y_i; in a tree the walk goes from row to the child that
equals its y, while there is one. The call commits y up to the first draft that
differs, cut at the first stop id, token limit or context limit. As y depends on prefix, seed and position alone, the
text is that of plain decoding (I1).
"""

from services.common.kernels.accept import reference
from services.common.kernels.accept.reference import LAST_BITS, logprobs
from services.common.kernels.accept.state import (
    End,
    Entrant,
    RoundResult,
    SlotParams,
    SlotState,
    flat_cells,
    mask_words,
)
from services.common.kernels.dispatch import Operator

__all__ = [
    "LAST_BITS",
    "End",
    "Entrant",
    "RoundResult",
    "SlotParams",
    "SlotState",
    "accept",
    "flat_cells",
    "logprobs",
    "mask_words",
    "peek",
]

accept = Operator(reference.accept)
peek = Operator(reference.peek)
