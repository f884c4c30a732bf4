"""Gated DeltaNet on the GPU: blocks are prepared side by side, then each head goes through them in order.

Bytes of a layer for B sequences: their states once, and once more where a block was completed; rows in L2.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from services.common.kernels.gated_delta.blocks import DeltaConstants
from services.common.kernels.gated_delta.chunk import prepare_kernel, scan_kernel
from services.common.kernels.gated_delta.cut import Cut, cut_rows
from services.common.kernels.gated_delta.norm import norm_kernel
from services.common.kernels.gated_delta.round import round_kernel
from services.common.kernels.gated_delta.span import DeltaSpan
from services.common.kernels.pdl import LAUNCH, PDL

PIECE = 32
"""Columns of keys that a product takes at once: a state and all that its product needs do not fit the registers."""
PRECISION = "tf32x3"
"""Of products of more than a block; their sums are float32."""


def delta_rows(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, out_TF: Tensor | None = None, cut: Cut | None = None,
) -> Tensor:  # fmt: skip
    """As the operator's; `cut` is for tests."""
    assert into_TF.is_contiguous() and state_SHKV.is_contiguous() and ring_SRC.is_contiguous(), "layers are contiguous"
    assert state_SHKV.dtype == torch.float32, "the kernels' states are float32"
    batch, (heads, v_dim) = span.slots_B.shape[0], (state_SHKV.shape[1], state_SHKV.shape[3])
    if out_TF is None:
        out_TF = into_TF.new_empty((len(into_TF), heads * v_dim))
    read_TF = into_TF.new_empty(out_TF.shape, dtype=torch.float32)
    cut = cut or cut_rows(batch, heads, v_dim, span.width <= span.widest)
    (_fused if cut.fused else _prepared)(into_TF, constants, span, state_SHKV, ring_SRC, read_TF, cut)
    rows = 1 if span.width == 1 else min(16, triton.next_power_of_2(span.width))
    norm_kernel[(triton.cdiv(span.width, rows), heads, batch)](
        read_TF, into_TF, norm_V, span.valid_B, out_TF, eps=eps,
        width=span.width, HEADS=heads, V_DIM=v_dim, FEATURES=into_TF.shape[1], KEPT=ring_SRC.shape[2], ROWS=rows,
        PDL=PDL, num_warps=1 if rows == 1 else 4, **LAUNCH,
    )  # fmt: skip
    return out_TF


def _shapes(into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor) -> dict[str, Any]:
    heads, k_dim, v_dim = state_SHKV.shape[1:]
    kept = len(constants.conv_CK) + 2 * heads
    return {
        "width": span.width, "RING": span.ring, "K_HEADS": constants.k_heads, "HEADS": heads, "K_DIM": k_dim,
        "V_DIM": v_dim, "PIECE": min(PIECE, k_dim), "FEATURES": into_TF.shape[1], "KEPT": kept, "PRECISION": PRECISION,
        "PDL": PDL, **LAUNCH,
    }  # fmt: skip


def _fused(
    into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor, ring_SRC: Tensor,
    read_TF: Tensor, cut: Cut,
) -> None:  # fmt: skip
    assert span.width <= span.widest, "rows of a longer span would be written where other programs still read"
    conv_CK, decay_H, bias_H, _, k_dim = constants
    heads, v_dim = state_SHKV.shape[1], state_SHKV.shape[3]
    round_kernel[(heads, v_dim // cut.columns, span.slots_B.shape[0])](
        into_TF, ring_SRC, state_SHKV, conv_CK, decay_H, bias_H, span.slots_B, span.lengths_B, span.folded_B,
        span.valid_B, read_TF, conv_CK.stride(0), conv_CK.stride(1), scale=k_dim**-0.5,
        TAPS=span.taps, COLUMNS=cut.columns, num_warps=cut.warps, num_stages=1,
        **_shapes(into_TF, constants, span, state_SHKV),
    )  # fmt: skip


def _prepared(
    into_TF: Tensor, constants: DeltaConstants, span: DeltaSpan, state_SHKV: Tensor, ring_SRC: Tensor,
    read_TF: Tensor, cut: Cut,
) -> None:  # fmt: skip
    conv_CK, decay_H, bias_H, k_heads, k_dim = constants
    batch, heads, v_dim, blocks = span.slots_B.shape[0], state_SHKV.shape[1], state_SHKV.shape[3], span.most_blocks
    scratch, sizes = decay_H.new_empty, (batch, blocks)
    scratches = (
        scratch((*sizes, k_heads, 32, k_dim)), scratch((*sizes, heads, 16, v_dim)), scratch((*sizes, heads, 32, 16)),
        scratch((*sizes, heads, 4, 16)),
    )  # fmt: skip
    where = (span.slots_B, span.lengths_B, span.folded_B, span.valid_B)
    shapes = _shapes(into_TF, constants, span, state_SHKV)
    prepare_kernel[(blocks, k_heads, batch)](
        into_TF, ring_SRC, conv_CK, decay_H, bias_H, *where, *scratches, conv_CK.stride(0), conv_CK.stride(1),
        scale=k_dim**-0.5, blocks=blocks, TAPS=span.taps, num_warps=4, num_stages=1, **shapes,
    )  # fmt: skip
    scan_kernel[(heads, v_dim // cut.columns, batch)](
        into_TF, ring_SRC, state_SHKV, *where, *scratches, read_TF,
        COLUMNS=cut.columns, blocks=blocks, num_warps=cut.warps, num_stages=cut.stages, **shapes,
    )  # fmt: skip
