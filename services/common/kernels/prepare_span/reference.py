"""Seating rows in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.span_attention.span import OPEN, Mask, Span, plan_context, plan_span


def prepare_span(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, drafts_BK: Tensor, block_size: int,
    mask: Mask = OPEN,
) -> tuple[Tensor, Span]:  # fmt: skip
    """Return the ids [B, W] of anchors and drafts, absent drafts as 0, and the span in which they attend causally.

    They may attend as the mask of a tree says.
    """
    ids_BW = torch.cat((anchor_S[rows_B].unsqueeze(1), drafts_BK.clamp_min(0)), 1)
    return ids_BW, plan_span(table_SN[rows_B], length_S[rows_B], ids_BW.shape[1], block_size, mask=mask)


def seat_block(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, width: int, block_size: int, mask: int
) -> tuple[Tensor, Span]:
    """Return the ids [B, W] of anchors and masks, and the span in which a block attends to its context and itself."""
    table_BN, lengths_B = table_SN.index_select(0, rows_B), length_S.index_select(0, rows_B)
    ids_BW = F.pad(anchor_S.index_select(0, rows_B)[:, None], (0, width - 1), value=mask)
    return ids_BW, plan_context(table_BN, lengths_B, width, block_size)
