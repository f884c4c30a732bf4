"""Chunks of certain rows in two kernels in CUDA C++, with the bits of the kernels in Triton.

One prepares blocks side by side; the other takes 64 columns of a head through its blocks, its state in registers.
"""

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import TensorMap, compiles
from services.common.kernels.gated_delta.blocks import DeltaConstants
from services.common.kernels.gated_delta.chunks.source import chain_program, prepare_program
from services.common.kernels.gated_delta.plan import BLOCK
from services.common.kernels.gated_delta.span import DeltaSpan

__all__ = ["Scratches", "chain_rows", "prepare_rows", "serves_chunk"]

_DIM, _TAPS, _ALIGNED = 128, 4, 4
_PARTS = 2
"""CTAs that share the columns of a head."""

Scratches = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of each block: factors, bases, keys and rates."""


def serves_chunk(into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor) -> bool:
    """Whether the kernels take a span: certain rows of heads they are made for, on a GPU of the measured kind."""
    sizes = (constants.k_dim, state_SHKV.shape[3], span.taps)
    if span.valid_B is None or span.width <= span.widest:
        return False
    if sizes != (_DIM, _DIM, _TAPS) or into_TF.dtype != torch.bfloat16:
        return False
    # Channels lie side by side; numbers are loaded by fours, and kept by eights.
    stride = constants.conv_CK.stride()
    if stride[0] != 1 or stride[1] % _ALIGNED or state_SHKV.shape[1] * 2 % (2 * _ALIGNED):
        return False
    where = (span.slots_B, span.lengths_B, span.folded_B, span.valid_B)
    return into_TF.is_cuda and all(x.dtype == torch.int64 for x in where) and _usable(into_TF.device)


def prepare_rows(
    into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, ring_SRC: Tensor, heads: int, scratches: Scratches
) -> None:
    """Write factors and bases, keys and rates of the blocks."""
    conv_CK, decay_H, bias_H, k_heads, k_dim = constants
    factors, bases, keys, rates = scratches
    maps = TensorMap(factors.view(-1, _DIM), 2 * BLOCK), TensorMap(keys.view(-1, _DIM), BLOCK)
    prepare_program().launch(
        (span.most_blocks * k_heads, len(span.slots_B)), *maps, bases, rates, into_TF, ring_SRC, conv_CK, decay_H,
        bias_H, span.slots_B, span.lengths_B, span.folded_B, span.valid_B, conv_CK.stride(1), span.width,
        span.most_blocks, span.ring, k_heads, heads, into_TF.shape[1], ring_SRC.shape[2], 0, k_dim**-0.5,
    )  # fmt: skip


def chain_rows(
    into_TF: Tensor, span: DeltaSpan, state_SHKV: Tensor, ring_SRC: Tensor, k_heads: int, scratches: Scratches,
    read_TF: Tensor,
) -> None:  # fmt: skip
    """Write what rows read, float32, keep the last rows, and fold complete blocks."""
    heads, (factors, bases, keys, rates) = state_SHKV.shape[1], scratches
    # TMA moves what it is given, of whatever type: a number of a base counts as two halves.
    maps = (
        TensorMap(factors.view(-1, _DIM), 4 * BLOCK), TensorMap(keys.view(-1, _DIM), 2 * BLOCK),
        TensorMap(bases.view(-1, _DIM).view(torch.float16), 2 * BLOCK),
    )  # fmt: skip
    chain_program().launch(
        (_PARTS * heads, len(span.slots_B)), *maps, rates, into_TF, ring_SRC, span.slots_B, span.lengths_B,
        span.folded_B, span.valid_B, state_SHKV, read_TF, span.width, span.most_blocks, span.ring, k_heads, heads,
        into_TF.shape[1], ring_SRC.shape[2], 0, span.most_blocks,
    )  # fmt: skip


@kept
def _usable(device: torch.device) -> bool:
    """Whether the GPU is of the measured kind and the kernels were compiled for it; what is not compiled is logged."""
    otherwise = "chunks of recurrent layers go through the kernels in Triton"
    return compiles(device, otherwise, prepare_program, chain_program)
