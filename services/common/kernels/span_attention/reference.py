"""Span attention in torch: gather the used positions, then one scaled dot product."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.span_attention.span import Span


def attend_span(q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let row j attend to positions 0 .. length + j."""
    keys_BTHD, values_BTHD = gathered(kv_2NSHD, span.read_BT)
    return attend(q_BWHD, keys_BTHD, values_BTHD, span.bias_B1WT)


def attend_block(q_BWHD: Tensor, keys_BWHD: Tensor, values_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let every row attend to the context and to its whole block."""
    keys_BTHD, values_BTHD = gathered(kv_2NSHD, span.read_BT)
    keys_BTHD = torch.cat((keys_BTHD, keys_BWHD), 1)
    values_BTHD = torch.cat((values_BTHD, values_BWHD), 1)
    return attend(q_BWHD, keys_BTHD, values_BTHD, span.bias_B1WT)


def gathered(kv_2NSHD: Tensor, index_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values [B, T, H, D] at flat slots [B, T]."""
    rows_2TF = kv_2NSHD.flatten(3).flatten(1, 2).index_select(1, index_BT.flatten())
    shape = [index_BT.shape[0], index_BT.shape[1], kv_2NSHD.shape[3], kv_2NSHD.shape[4]]
    return rows_2TF[0].view(shape), rows_2TF[1].view(shape)


def attend(q_BWHD: Tensor, keys_BTHD: Tensor, values_BTHD: Tensor, bias_B1WT: Tensor | None) -> Tensor:
    """Return [B, W, H * D] of queries that share keys and values by groups; the bias is added to the scores."""
    if bias_B1WT is not None and bias_B1WT.dtype != q_BWHD.dtype:
        bias_B1WT = bias_B1WT.to(q_BWHD.dtype)
    out_BHWD = F.scaled_dot_product_attention(
        q_BWHD.transpose(1, 2), keys_BTHD.transpose(1, 2), values_BTHD.transpose(1, 2),
        attn_mask=bias_B1WT, enable_gqa=q_BWHD.shape[2] != keys_BTHD.shape[2],
    )  # fmt: skip
    return out_BHWD.transpose(1, 2).flatten(2)
