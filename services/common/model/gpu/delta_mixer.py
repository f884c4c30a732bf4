"""The recurrent mixer by kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.gated_delta import DeltaConstants, DeltaSpan, delta_rows
from services.common.kernels.linear import Normed, linear_normed
from services.common.kernels.rope import Rotation
from services.common.model.spec import Delta
from services.common.model.states.states import LayerState, Rows, SpanPlan
from services.common.model.weights.delta_weights import DeltaWeights


@dataclass(frozen=True)
class DeltaMixer:
    """Gated DeltaNet: rows move a state, read it, and pass a norm that is gated by a product of their own."""

    weights: DeltaWeights
    delta: Delta
    eps: float

    @property
    def constants(self) -> DeltaConstants:
        """What the recurrence takes of the layer."""
        own = self.weights
        return DeltaConstants(own.conv_CK, own.decay_H, own.bias_H, self.delta.k_heads, self.delta.k_dim)

    def __call__(
        self, normed: Normed, rows: Rows, rotations: Sequence[Rotation], state: LayerState, plans: Sequence[SpanPlan]
    ) -> Tensor:
        """`state` are the states and rings of all slots; nothing turns here."""
        own, (state_SHKV, ring_SRC) = self.weights, state
        into_TF = linear_normed(normed, own.into_FD, self.eps)
        spans = [plan for plan in plans if isinstance(plan, DeltaSpan)]
        mixed = [
            delta_rows(part_TF, self.constants, own.norm_V, self.eps, span, state_SHKV, ring_SRC)
            for part_TF, span in zip(into_TF.split([part.span.count for part in rows.parts]), spans, strict=True)
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)
