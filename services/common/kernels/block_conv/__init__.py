"""Grouped dynamic convolution over the rows of a block: each row has its own kernel for each group of columns."""

from torch import Tensor

from services.common.kernels.block_conv import reference
from services.common.kernels.dispatch import on_kernel


def block_conv(rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_BWD: Tensor | None = None) -> Tensor:
    """Return `sum over k of (base[k] + delta[.., k, group]) * rows[.., row - k]` [B, W, D], in float32 or wider.

    Columns come in G groups of equal size. Rows before a block's first are zeros. A `stream` is added before the one
    rounding.
    """
    if on_kernel(rows_BWD):
        from services.common.kernels.block_conv import kernel

        return kernel.block_conv(rows_BWD, delta_BWKG, base_KD, stream_BWD)
    return reference.block_conv(rows_BWD, delta_BWKG, base_KD, stream_BWD)
