"""Gated DeltaNet on the GPU: blocks are prepared side by side, then each head goes through them in order.

Bytes of a layer for B sequences: their states once, and once more where a block was completed; rows in L2.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from services.common.kernels.gated_delta.blocks import DeltaConstants
from services.common.kernels.gated_delta.chunks import Scratches, chain_rows, prepare_rows, serves_chunk
from services.common.kernels.gated_delta.cut import ALONE, Cut, cut_rows
from services.common.kernels.gated_delta.norm import norm_kernel
from services.common.kernels.gated_delta.prepare import prepare_kernel
from services.common.kernels.gated_delta.rounds import round_rows, serves_round
from services.common.kernels.gated_delta.scan import scan_kernel
from services.common.kernels.gated_delta.span import DeltaSpan
from services.common.kernels.pdl import LAUNCH, PDL

REGISTERS = 128
"""Of a thread that prepares a block among many: four programs share a processor, where two did.

Some numbers then wait in L1. On an H200 a chunk's layer took 398 us without the limit and 314 with it.
"""

SCAN_REGISTERS = 168
"""Of a thread that takes many sequences' heads through a round: three programs share a processor, where two did."""


def delta_rows(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, out_TF: Tensor | None = None, cut: Cut | None = None,
) -> Tensor:  # fmt: skip
    """As the operator's; a `cut`, for tests, is of the kernels in Triton."""
    assert into_TF.is_contiguous() and state_SHKV.is_contiguous() and ring_SRC.is_contiguous(), "layers are contiguous"
    assert state_SHKV.dtype == torch.float32, "the kernels' states are float32"
    heads, v_dim = state_SHKV.shape[1], state_SHKV.shape[3]
    if out_TF is None:
        out_TF = into_TF.new_empty((len(into_TF), heads * v_dim))
    if cut is None and serves_round(into_TF, constants, span, state_SHKV):
        round_rows(into_TF, constants, norm_V, eps, span, state_SHKV, ring_SRC, out_TF)
        return out_TF
    if cut is None and serves_chunk(into_TF, constants, span, state_SHKV):
        read_TF = _read_chunk(into_TF, constants, span, state_SHKV, ring_SRC)
        _norm(read_TF, into_TF, norm_V, eps, span, ring_SRC, out_TF, v_dim)
        return out_TF
    cut = cut or cut_rows(len(span.slots_B), heads, v_dim, span.width <= span.widest)
    _scan(into_TF, constants, norm_V, eps, span, state_SHKV, ring_SRC, out_TF, cut)
    return out_TF


def _scan(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, out_TF: Tensor, cut: Cut,
) -> None:  # fmt: skip
    """Do what `delta_rows` does by the programs in Triton."""
    batch, heads, v_dim = len(span.slots_B), state_SHKV.shape[1], state_SHKV.shape[3]
    few = span.width <= span.widest
    # Rows that no block reaches are written by the kernel that norms.
    together = few and span.valid_B is None and cut.columns == v_dim
    read_TF = out_TF if together else into_TF.new_empty(out_TF.shape, dtype=torch.float32)
    scratches = _prepared(into_TF, constants, span, state_SHKV, ring_SRC)
    scan_kernel[(heads, v_dim // cut.columns, batch)](
        into_TF, ring_SRC, state_SHKV, norm_V, *_where(span), *scratches, read_TF, blocks=span.most_blocks, eps=eps,
        COLUMNS=cut.columns, NORMED=together, FEW=few, num_warps=cut.warps, num_stages=cut.stages,
        maxnreg=SCAN_REGISTERS if few and batch * heads > ALONE else None,
        **_shapes(into_TF, constants, span, state_SHKV),
    )  # fmt: skip
    if not together:
        _norm(read_TF, into_TF, norm_V, eps, span, ring_SRC, out_TF, v_dim)


def _read_chunk(
    into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor, ring_SRC: Tensor
) -> Tensor:
    """Return what rows read, float32; fold blocks and keep the last rows."""
    heads, v_dim = state_SHKV.shape[1], state_SHKV.shape[3]
    read_TF = into_TF.new_empty((len(into_TF), heads * v_dim), dtype=torch.float32)
    scratches = _scratches(constants, span, heads, v_dim)
    prepare_rows(into_TF, constants, span, ring_SRC, heads, scratches)
    chain_rows(into_TF, span, state_SHKV, ring_SRC, constants.k_heads, scratches, read_TF)
    return read_TF


def _norm(
    read_TF: Tensor, into_TF: Tensor, norm_V: Tensor, eps: float, span: DeltaSpan, ring_SRC: Tensor, out_TF: Tensor,
    v_dim: int,
) -> None:  # fmt: skip
    heads, batch = out_TF.shape[1] // v_dim, len(span.slots_B)
    rows = 1 if span.width == 1 else min(16, triton.next_power_of_2(span.width))
    norm_kernel[(triton.cdiv(span.width, rows), heads, batch)](
        read_TF, into_TF, norm_V, span.valid_B, out_TF, eps=eps,
        width=span.width, HEADS=heads, V_DIM=v_dim, FEATURES=into_TF.shape[1], KEPT=ring_SRC.shape[2], ROWS=rows,
        PDL=PDL, num_warps=1 if rows == 1 else 4, **LAUNCH,
    )  # fmt: skip


def _where(span: DeltaSpan) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    return span.slots_B, span.lengths_B, span.folded_B, span.valid_B


def _shapes(into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor) -> dict[str, Any]:
    heads, k_dim, v_dim = state_SHKV.shape[1:]
    return {
        "width": span.width, "RING": span.ring, "K_HEADS": constants.k_heads, "HEADS": heads, "K_DIM": k_dim,
        "V_DIM": v_dim, "FEATURES": into_TF.shape[1], "KEPT": len(constants.conv_CK) + 2 * heads, "PDL": PDL, **LAUNCH,
    }  # fmt: skip


def _scratches(constants: DeltaConstants, span: DeltaSpan, heads: int, v_dim: int) -> Scratches:
    """Return room for what is prepared of each block: factors and bases, keys and rates."""
    like, k_heads, k_dim = constants.decay_H, constants.k_heads, constants.k_dim
    sizes = (len(span.slots_B), span.most_blocks)
    return (
        like.new_empty((*sizes, heads, 2, 32, k_dim), dtype=torch.float16),
        like.new_empty((*sizes, heads, 32, v_dim)),
        like.new_empty((*sizes, k_heads, 2, 16, k_dim), dtype=torch.float16),
        like.new_empty((*sizes, heads, 32)),
    )


def _prepared(
    into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor, ring_SRC: Tensor
) -> Scratches:
    """Return of each block factors and bases, keys and rates."""
    conv_CK, decay_H, bias_H, _, k_dim = constants
    batch, heads, blocks = len(span.slots_B), state_SHKV.shape[1], span.most_blocks
    scratches = _scratches(constants, span, heads, state_SHKV.shape[3])
    # More warps make one program quicker, and many slower.
    few = span.width <= span.widest
    shared = {"num_warps": 8} if few and batch * heads <= ALONE else {"num_warps": 4, "maxnreg": REGISTERS}
    prepare_kernel[(blocks, heads, batch)](
        into_TF, ring_SRC, conv_CK, decay_H, bias_H, *_where(span), *scratches, conv_CK.stride(0), conv_CK.stride(1),
        scale=k_dim**-0.5, blocks=blocks, TAPS=span.taps, FEW=few,
        num_stages=1, **shared, **_shapes(into_TF, constants, span, state_SHKV),
    )  # fmt: skip
    return scratches
