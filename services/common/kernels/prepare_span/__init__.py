"""The start of a forward over slots: ids, lengths, block tables and positions of a round's rows.

Suffixes: S slots + 1, N blocks of a slot, B rows, W the span, K drafts, one less.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.dispatch import told_by
from services.common.kernels.row_table import RowTable
from services.common.kernels.span_attention.span import OPEN, Mask, Span, plan_context, plan_span


@told_by(3)
def prepare_span(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, drafts_BK: Tensor, block_size: int,
    mask: Mask = OPEN, table: RowTable | None = None,
) -> tuple[Tensor, Span]:  # fmt: skip
    """Return the ids [B, W] of anchors and drafts, absent drafts as 0, and the span in which they attend causally.

    They may attend as the mask of a tree says. With a `table` ids and span are of its pieces, [P, G].
    """
    ids_BW = torch.cat((anchor_S[rows_B].unsqueeze(1), drafts_BK.clamp_min(0)), 1)
    if table is not None:
        seats_P, ids_PG = table.seats_P, ids_BW[table.lines_P.long()[:, None], table.places_PG]
        ids_PG[:, 0] = torch.where(table.offsets_P == 0, anchor_S[seats_P], ids_PG[:, 0])  # padding has a line's drafts
        return ids_PG, plan_span(table_SN[seats_P], length_S[seats_P] + table.offsets_P, table.grain, block_size)
    return ids_BW, plan_span(table_SN[rows_B], length_S[rows_B], ids_BW.shape[1], block_size, mask=mask)


@told_by(3)
def seat_block(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, width: int, block_size: int, mask: int
) -> tuple[Tensor, Span]:
    """Return the ids [B, W] of anchors and masks, and the span in which a block attends to its context and itself."""
    table_BN, lengths_B = table_SN.index_select(0, rows_B), length_S.index_select(0, rows_B)
    ids_BW = F.pad(anchor_S.index_select(0, rows_B)[:, None], (0, width - 1), value=mask)
    return ids_BW, plan_context(table_BN, lengths_B, width, block_size)
