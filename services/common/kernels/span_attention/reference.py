"""Span attention in torch: gather the used positions, then one scaled dot product."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.kv_codes.reference import widened
from services.common.kernels.span_attention.span import Span


def attend_span(
    q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, exponents_2NSH: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Let row j attend to positions 0 .. length + j."""
    room_2BTHD = room_for(kv_2NSHD, span.read_BT)
    return attend_paged(q_BWHD, kv_2NSHD, exponents_2NSH, span.read_BT, room_2BTHD, span.bias_B1WT, scale)


def attend_block(q_BWHD: Tensor, keys_BWHD: Tensor, values_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let every row attend to the context and to its whole block."""
    keys_BTHD, values_BTHD = gathered(kv_2NSHD, span.read_BT, room_for(kv_2NSHD, span.read_BT))
    keys_BTHD = torch.cat((keys_BTHD, keys_BWHD), 1)
    values_BTHD = torch.cat((values_BTHD, values_BWHD), 1)
    return attend(q_BWHD, keys_BTHD, values_BTHD, span.bias_B1WT)


def attend_paged(
    q_BWHD: Tensor, kv_2NSHD: Tensor, exponents_2NSH: Tensor | None, index_BT: Tensor, room_2BTHD: Tensor,
    bias_B1WT: Tensor | None, scale: float | None = None, wide: bool = False,
) -> Tensor:  # fmt: skip
    """Return [B, W, H * D] of queries over keys and values at flat slots [B, T]; `room_for` them holds their numbers.

    By codes, and where `wide`, sums are float64. In float32 their order follows the number of rows, and where the last
    bit of a row differs, a code of eight bits made of it may be another, a whole step away.
    """
    if exponents_2NSH is None:
        keys_BTHD, values_BTHD = gathered(kv_2NSHD, index_BT, room_2BTHD)
        if not wide:
            return attend(q_BWHD, keys_BTHD, values_BTHD, bias_B1WT, scale)
        return attend(q_BWHD.double(), keys_BTHD.double(), values_BTHD.double(), bias_B1WT, scale).to(q_BWHD.dtype)
    flat_2PHD, flat_2PH, index_T = kv_2NSHD.flatten(1, 2), exponents_2NSH.flatten(1, 2), index_BT.flatten()
    codes_2THD, own_2TH = flat_2PHD.index_select(1, index_T), flat_2PH.index_select(1, index_T)
    room_2BTHD.copy_(widened(codes_2THD, own_2TH, room_2BTHD.dtype).view(room_2BTHD.shape))
    return attend(q_BWHD.double(), room_2BTHD[0], room_2BTHD[1], bias_B1WT, scale).to(q_BWHD.dtype)


def room_for(kv_2NSHD: Tensor, index_BT: Tensor) -> Tensor:
    """Return memory for the keys and values of one layer, which the layers after it may use again."""
    shape = [2, index_BT.shape[0], index_BT.shape[1], kv_2NSHD.shape[-2], kv_2NSHD.shape[-1]]
    kind = kv_2NSHD.dtype if kv_2NSHD.is_floating_point() else torch.float64
    return torch.empty(shape, dtype=kind, device=kv_2NSHD.device)


def gathered(kv_2NSHD: Tensor, index_BT: Tensor, room_2BTHD: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values [B, T, H, D] at flat slots [B, T], written into `room_for` them."""
    flat_2PHD, index_T = kv_2NSHD.flatten(1, 2), index_BT.flatten()
    keys_BTHD, values_BTHD = room_2BTHD[0], room_2BTHD[1]
    torch.index_select(flat_2PHD[0], 0, index_T, out=keys_BTHD.flatten(0, 1))
    torch.index_select(flat_2PHD[1], 0, index_T, out=values_BTHD.flatten(0, 1))
    return keys_BTHD, values_BTHD


def attend(
    q_BWHD: Tensor, keys_BTHD: Tensor, values_BTHD: Tensor, bias_B1WT: Tensor | None, scale: float | None = None
) -> Tensor:
    """Return [B, W, H * D] of queries that share keys and values by groups; the bias is added to the scores.

    Products of queries and keys are multiplied by `scale`, without one by `D ** -0.5`.
    """
    if bias_B1WT is not None and bias_B1WT.dtype != q_BWHD.dtype:
        bias_B1WT = bias_B1WT.to(q_BWHD.dtype)
    out_BHWD = F.scaled_dot_product_attention(
        q_BWHD.transpose(1, 2), keys_BTHD.transpose(1, 2), values_BTHD.transpose(1, 2),
        attn_mask=bias_B1WT, scale=scale, enable_gqa=q_BWHD.shape[2] != keys_BTHD.shape[2],
    )  # fmt: skip
    return out_BHWD.transpose(1, 2).flatten(2)
