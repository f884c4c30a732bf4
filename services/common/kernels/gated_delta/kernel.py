"""Gated DeltaNet on the GPU: one launch or two for a round, three for a chunk; nothing is read by the host.

Bytes of a layer for B sequences: their states once, and once more where a block was completed; rows in L2.
"""

import torch
import triton
from torch import Tensor

from services.common.kernels.gated_delta.blocks import DeltaConstants
from services.common.kernels.gated_delta.chunk import prepare_kernel, scan_kernel
from services.common.kernels.gated_delta.cut import Cut, cut_chunk, cut_round
from services.common.kernels.gated_delta.norm import norm_kernel
from services.common.kernels.gated_delta.round import round_kernel
from services.common.kernels.gated_delta.span import DeltaSpan
from services.common.kernels.pdl import LAUNCH, PDL

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
    wide = span.width > span.widest
    cut = cut or (cut_chunk if wide else cut_round)(batch, heads, v_dim)
    read_TF = out_TF if cut.columns == v_dim else into_TF.new_empty(out_TF.shape, dtype=torch.float32)
    (_chunk if wide else _round)(into_TF, constants, norm_V, eps, span, state_SHKV, ring_SRC, read_TF, cut)
    if cut.columns < v_dim:
        norm_kernel[(triton.cdiv(span.width, 16), heads, batch)](
            read_TF, into_TF, norm_V, span.lengths_B, span.valid_B, out_TF, eps,
            HEADS=heads, V_DIM=v_dim, WIDTH=span.width, FEATURES=into_TF.shape[1], KEPT=ring_SRC.shape[2], PDL=PDL,
            num_warps=4, **LAUNCH,
        )  # fmt: skip
    return out_TF


def _round(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, read_TF: Tensor, cut: Cut,
) -> None:  # fmt: skip
    conv_CK, decay_H, bias_H, k_heads, k_dim = constants
    heads, v_dim = state_SHKV.shape[1], state_SHKV.shape[3]
    round_kernel[(heads, v_dim // cut.columns, span.slots_B.shape[0])](
        into_TF, ring_SRC, state_SHKV, conv_CK, decay_H, bias_H, norm_V, span.slots_B, span.lengths_B, span.folded_B,
        span.valid_B, read_TF, conv_CK.stride(0), conv_CK.stride(1), eps, k_dim**-0.5,
        WIDTH=span.width, RING=span.ring, TAPS=span.taps, K_HEADS=k_heads, HEADS=heads, K_DIM=k_dim, V_DIM=v_dim,
        COLUMNS=cut.columns, FEATURES=into_TF.shape[1], KEPT=ring_SRC.shape[2], PRECISION=PRECISION, PDL=PDL,
        num_warps=cut.warps, **LAUNCH,
    )  # fmt: skip


def _chunk(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, read_TF: Tensor, cut: Cut,
) -> None:  # fmt: skip
    conv_CK, decay_H, bias_H, k_heads, k_dim = constants
    batch, heads, v_dim, blocks = span.slots_B.shape[0], state_SHKV.shape[1], state_SHKV.shape[3], span.most_blocks
    scratch, sizes = decay_H.new_empty, (batch, blocks)
    prepared = (
        scratch((*sizes, k_heads, 32, k_dim)), scratch((*sizes, heads, 16, v_dim)), scratch((*sizes, heads, 32, 16)),
        scratch((*sizes, heads, 4, 16)),
    )  # fmt: skip
    where = (span.slots_B, span.lengths_B, span.folded_B, span.valid_B)
    shapes = {
        "WIDTH": span.width, "RING": span.ring, "K_HEADS": k_heads, "HEADS": heads, "K_DIM": k_dim, "V_DIM": v_dim,
        "FEATURES": into_TF.shape[1], "KEPT": ring_SRC.shape[2], "BLOCKS": blocks, "PRECISION": PRECISION, "PDL": PDL,
        **LAUNCH,
    }  # fmt: skip
    prepare_kernel[(blocks, k_heads, batch)](
        into_TF, ring_SRC, conv_CK, decay_H, bias_H, *where, *prepared, conv_CK.stride(0), conv_CK.stride(1),
        k_dim**-0.5, TAPS=span.taps, num_warps=4, **shapes,
    )  # fmt: skip
    scan_kernel[(heads, v_dim // cut.columns, batch)](
        into_TF, ring_SRC, state_SHKV, norm_V, *where, *prepared, read_TF, eps,
        COLUMNS=cut.columns, num_warps=cut.warps, **shapes,
    )  # fmt: skip
