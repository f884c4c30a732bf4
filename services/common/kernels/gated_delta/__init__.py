"""Gated DeltaNet (arXiv:2412.06464): a recurrent layer whose state rolls back exactly.

`blocks` serves on a CPU and `kernel` on a GPU; `reference` is the recurrence token by token that both are judged by.
README.md tells the arithmetic.
"""

from torch import Tensor

from services.common.kernels.gated_delta.blocks import DeltaConstants, gated_delta
from services.common.kernels.gated_delta.plan import BLOCK, BlockPlan, plan_blocks, ring_rows
from services.common.kernels.gated_delta.span import DeltaSpan, next_folded

__all__ = [
    "BLOCK", "BlockPlan", "DeltaConstants", "DeltaSpan", "delta_rows", "gated_delta", "next_folded", "plan_blocks",
    "ring_rows",
]  # fmt: skip


def delta_rows(
    into_TF: Tensor, constants: DeltaConstants, norm_V: Tensor, eps: float, span: DeltaSpan, state_SHKV: Tensor,
    ring_SRC: Tensor, out_TF: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the mixed rows [T, Hv * Dv] of one layer and span in the rows' type; keep them, fold complete blocks.

    `into_TF` are B * W rows as projected: what a sequence keeps of a row (queries, keys, values, logits of beta and
    inputs of the decay), then z, whose SiLU gates the norm. `norm_V` is that norm's weight, whole. `state_SHKV` is
    float32, and NaN where nothing was folded; `ring_SRC` has the rows' type. The result goes to `out_TF` where that is
    given. Nothing is read by the host, so a call may be captured; `next_folded` goes to the slots after all layers.

    Constants are float32. The convolution is read quickest where its channels lie side by side: [taps, C] transposed.
    Between two calls for one layer another kernel must have run that waits for what is before it.
    """
    from services.common.kernels.gated_delta import kernel

    return kernel.delta_rows(into_TF, constants, norm_V, eps, span, state_SHKV, ring_SRC, out_TF)
