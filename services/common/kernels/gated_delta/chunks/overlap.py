"""Blocks of a long prompt in parts: a part goes through its states while the next one is prepared."""

from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from services.common.kernels.gated_delta.blocks import DeltaConstants
from services.common.kernels.gated_delta.chunks import Scratches, chain_rows, prepare_rows
from services.common.kernels.gated_delta.span import DeltaSpan

_PARTS, _LEAST_BLOCKS = 4, 64


def parts_of(sequences: int, blocks: int) -> list[range]:
    """Return the parts of a span's blocks, in order; the first is small, because nothing runs beside its preparation.

    Several sequences go through their states on all multiprocessors, which leave a preparation beside them no room.
    """
    if sequences > 1 or blocks < _LEAST_BLOCKS:
        return [range(blocks)]
    edges = [0, *(round(blocks * (number + 0.5) / (_PARTS - 0.5)) for number in range(_PARTS))]
    return [range(first, behind) for first, behind in pairwise(edges)]


def read_blocks(
    into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor, ring_SRC: Tensor,
    scratches: Scratches, read_TF: Tensor,
) -> bool:  # fmt: skip
    """Write what rows read, keep the last rows and fold blocks; return whether a second stream took part.

    What follows then starts when that stream is done. Tensors are torch's stream's own, and it waits for the other one
    before it frees any.
    """
    heads, (first, *others) = state_SHKV.shape[1], parts_of(len(span.slots_B), span.most_blocks)
    prepare_rows(into_TF, constants, span, ring_SRC, heads, scratches, first)
    if not others:
        chain_rows(into_TF, span, state_SHKV, ring_SRC, constants.k_heads, scratches, read_TF, first)
        return False
    main, side = torch.cuda.current_stream(), _side_stream(into_TF.device)
    for part, following in zip((first, *others), (*others, None), strict=True):
        side.wait_stream(main)
        with torch.cuda.stream(side):
            chain_rows(into_TF, span, state_SHKV, ring_SRC, constants.k_heads, scratches, read_TF, part, early=False)
        if following:
            prepare_rows(into_TF, constants, span, ring_SRC, heads, scratches, following)
    main.wait_stream(side)
    return True


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One whose kernels go first: the others wait for them in the end."""
    return torch.cuda.Stream(device, priority=-1)
