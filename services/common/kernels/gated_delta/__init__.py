"""Gated DeltaNet (arXiv:2412.06464): a recurrent layer whose state rolls back exactly.

`blocks` is what serves, `reference` is the recurrence token by token that it is judged by; README.md tells the
arithmetic.
"""

from services.common.kernels.gated_delta.blocks import DeltaConstants, gated_delta
from services.common.kernels.gated_delta.plan import BLOCK, BlockPlan, plan_blocks, ring_rows

__all__ = ["BLOCK", "BlockPlan", "DeltaConstants", "gated_delta", "plan_blocks", "ring_rows"]
