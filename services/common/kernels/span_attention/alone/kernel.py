"""The launch of the kernel for a row that is alone, and what it is made for."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import compiles
from services.common.kernels.linear.kernel import engine_of
from services.common.kernels.normed import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.alone.source import CTAS, Shape, program_of, takes_row
from services.common.kernels.span_attention.span import Mask, Span
from services.common.kernels.span_attention.types import Heads, readable

_LEAST_BLOCK = 8


def attend_mixed(heads: Heads, span: Span, gates_TH: Tensor | None = None) -> Tensor:
    """Do it behind the product of a row; return the mixed row [1, Hq * D].

    With gates that the product made too, heads are multiplied by their softplus, as `gate_heads` does it.
    """
    kv_heads, out_TF = heads.kv_2NSHD.shape[3], heads.room()
    shape = _shape(heads.mixed_TF.shape[1], heads.kv_2NSHD, span.mask, gates_TH is not None)
    program_of(shape).launch(
        (kv_heads * CTAS, 1), *heads.tensors, span.block_table_BN, span.lengths_B, span.reach_B, gates_TH, out_TF,
        heads.places, span.block_table_BN.shape[1], kv_heads, *heads.numbers, heads.scale,
    )  # fmt: skip
    return out_TF


def serves(
    normed: Normed, qkv_FD: Tensor, lines: int, norm_HD: Tensor | None, rotation: Rotation, kv_2NSHD: Tensor,
    span: Span, bias_F: Tensor | None, gates_TH: Tensor | None = None,
) -> bool:  # fmt: skip
    """Whether the kernel takes a round, behind a product that lets it begin when all before that is complete.

    So many of the product's first `lines` are those of heads.
    """
    block, kv_heads, size = kv_2NSHD.shape[2:]
    open_but_for_windows = replace(span.mask, window=0).is_open
    if span.positions_BW.numel() != 1 or not open_but_for_windows or block % _LEAST_BLOCK:
        return False
    if not takes_row(lines // size // kv_heads - 2, kv_heads, size, span.short, span.mask.window):
        return False
    if not readable(
        (torch.bfloat16, (kv_2NSHD, norm_HD, bias_F, gates_TH)), (torch.float32, rotation),
        (torch.int32, (span.block_table_BN,)), (torch.int64, (span.slots_T, span.lengths_B, span.reach_B)),
    ):  # fmt: skip
        return False
    if not engine_of(normed.rows_TD, qkv_FD).earlier_is_complete:
        return False
    return _usable(normed.rows_TD.device, _shape(lines, kv_2NSHD, span.mask, gates_TH is not None))


def _shape(lines: int, kv_2NSHD: Tensor, mask: Mask, gated: bool) -> Shape:
    block, kv_heads, size = kv_2NSHD.shape[2:]
    return Shape(size, lines // size // kv_heads - 2, block, mask.window, gated)


@kept
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"a row alone of {shape.group} heads a group goes through three kernels"
    return compiles(device, otherwise, partial(program_of, shape))
