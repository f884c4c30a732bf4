"""Rounds of few rows in one kernel in CUDA C++, with the bits of the kernels in Triton.

Bytes of a layer for B sequences: their states once, and once more where a block was completed; rows in L2.
"""

from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import compiles
from services.common.kernels.gated_delta.blocks import DeltaConstants
from services.common.kernels.gated_delta.plan import BLOCK
from services.common.kernels.gated_delta.rounds.source import PROGRAMS, many_grid, many_program, program_of
from services.common.kernels.gated_delta.span import DeltaSpan

__all__ = ["round_rows", "serves_round"]

_DIM, _TAPS, _ALIGNED, _COPIED = 128, 4, 4, 8
_ALONE = 128
"""CTAs that have a processor each; beyond, two that share one were quicker."""
_MANY = 8
"""Sequences from which on blocks are prepared beside states."""


def serves_round(into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor) -> bool:
    """Whether the kernel takes a span: drafts of heads it is made for, on a GPU of the measured kind."""
    sizes = (constants.k_dim, state_SHKV.shape[3], span.taps)
    few = span.valid_B is None and span.width <= span.widest <= BLOCK
    if not few or sizes != (_DIM, _DIM, _TAPS) or into_TF.dtype != torch.bfloat16:
        return False
    # Channels lie side by side, and numbers are loaded by fours; rows are copied by eights of them.
    stride = constants.conv_CK.stride()
    if stride[0] != 1 or stride[1] % _ALIGNED or state_SHKV.shape[1] * 2 % _COPIED:
        return False
    where = (span.slots_B, span.lengths_B, span.folded_B)
    return into_TF.is_cuda and all(x.dtype == torch.int64 for x in where) and _usable(into_TF.device)


def round_rows(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, out_TF: Tensor,
) -> None:  # fmt: skip
    """As the operator does: rows into `out_TF`, rows kept, complete blocks folded."""
    conv_CK, decay_H, bias_H, k_heads, k_dim = constants
    assert norm_V.dtype == into_TF.dtype and out_TF.is_contiguous(), "rows, results and the norm have one type"
    batch, heads = len(span.slots_B), state_SHKV.shape[1]
    read = (
        into_TF, ring_SRC, conv_CK, decay_H, bias_H, norm_V, span.slots_B, span.lengths_B, span.folded_B, state_SHKV,
        out_TF, conv_CK.stride(1), span.width, span.ring, k_heads, heads, into_TF.shape[1], ring_SRC.shape[2],
    )  # fmt: skip
    if batch >= _MANY:
        return many_program().launch(many_grid(batch, k_heads, heads), *read, batch, k_dim**-0.5, eps)
    # Few heads have a processor each; of more, one computes while the other waits for memory.
    program = program_of(1 if batch * heads <= _ALONE else 2)
    return program.launch((heads, batch), *read, k_dim**-0.5, eps)


@kept
def _usable(device: torch.device) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    of_one = (partial(program_of, number) for number in PROGRAMS)
    otherwise = "rounds of recurrent layers go through the kernels in Triton"
    return compiles(device, otherwise, *of_one, many_program)
