"""Synthetic acceptance's edit of the logits: drafts that shall be accepted become the best tokens of their rows."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.force_acceptance import reference


def force_acceptance(logits_BWV: Tensor, drafts_BK: Tensor, rates_K: Tensor, calls_B: Tensor) -> None:
    """Lift the drafts below a row's draw over all other tokens and sink the rest, in place.

    A row draws once: draft j is lifted when the draw is below `rates_K[j]`, so rates are unconditional and fall. The
    draw depends on the row and on `calls_B`, int64, which counts it.
    """
    if on_kernel(logits_BWV):
        from services.common.kernels.force_acceptance import kernel

        kernel.force_acceptance(logits_BWV, drafts_BK, rates_K, calls_B)
    else:
        reference.force_acceptance(logits_BWV, drafts_BK, rates_K, calls_B)
