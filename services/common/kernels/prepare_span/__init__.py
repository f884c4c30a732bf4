"""The start of a forward over slots: ids, lengths, block tables and positions of a round's rows.

Suffixes: S slots + 1, N blocks of a slot, B rows, W the span, K drafts, one less.
"""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.prepare_span import reference
from services.common.kernels.span_attention import Span
from services.common.kernels.span_attention.mask import OPEN, Mask


def prepare_span(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, drafts_BK: Tensor, block_size: int,
    mask: Mask = OPEN,
) -> tuple[Tensor, Span]:  # fmt: skip
    """Return the ids [B, W] of anchors and drafts, absent drafts as 0, and the span in which they attend causally.

    They may attend as the mask of a tree says.
    """
    if on_kernel(table_SN):
        from services.common.kernels.prepare_span import kernel

        width = drafts_BK.shape[1] + 1
        return kernel.prepare_rows(rows_B, anchor_S, length_S, table_SN, drafts_BK, width, block_size, grown=mask)
    return reference.prepare_span(rows_B, anchor_S, length_S, table_SN, drafts_BK, block_size, mask)


def seat_block(
    rows_B: Tensor, anchor_S: Tensor, length_S: Tensor, table_SN: Tensor, width: int, block_size: int, mask: int
) -> tuple[Tensor, Span]:
    """Return the ids [B, W] of anchors and masks, and the span in which a block attends to its context and itself."""
    if on_kernel(table_SN):
        from services.common.kernels.prepare_span import kernel

        return kernel.prepare_rows(rows_B, anchor_S, length_S, table_SN, None, width, block_size, mask)
    return reference.seat_block(rows_B, anchor_S, length_S, table_SN, width, block_size, mask)
