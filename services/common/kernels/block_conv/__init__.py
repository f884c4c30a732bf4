"""Grouped dynamic convolution over the rows of a block: each row has its own kernel for each group of columns."""

import torch
from torch import Tensor
from torch.nn import functional as F

from services.common.kernels.dispatch import Operator
from services.common.kernels.rms_norm.reference import rms_norm


@Operator
def block_conv(rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_BWD: Tensor | None = None) -> Tensor:
    """Return `sum over k of (base[k] + delta[.., k, group]) * rows[.., row - k]` [B, W, D], in float32 or wider.

    Columns come in G groups of equal size. Rows before a block's first are zeros. A `stream` is added before the one
    rounding.
    """
    wide = torch.float64 if rows_BWD.dtype == torch.float64 else torch.float32
    width, groups = rows_BWD.shape[1], delta_BWKG.shape[3]
    values_BWD, size = rows_BWD.to(wide), rows_BWD.shape[2] // groups
    total_BWD = torch.zeros_like(values_BWD) if stream_BWD is None else stream_BWD.to(wide)
    for tap in range(base_KD.shape[0]):
        shifted_BWD = F.pad(values_BWD, (0, 0, tap, 0))[:, :width]
        kernel_BWD = delta_BWKG[:, :, tap].to(wide).repeat_interleave(size, -1) + base_KD[tap].to(wide)
        total_BWD = total_BWD + kernel_BWD * shifted_BWD
    return total_BWD.to(rows_BWD.dtype)


@Operator
def block_conv_normed(
    rows_BWD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_BWD: Tensor, norm_D: Tensor, eps: float,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return `block_conv` with the stream added, and the RMSNorm of that, both [B, W, D]."""
    total_BWD = block_conv(rows_BWD, delta_BWKG, base_KD, stream_BWD)
    return total_BWD, rms_norm(total_BWD, norm_D, eps, offset)
