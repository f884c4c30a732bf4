"""Feed-forward parts by kernels."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from services.common.kernels.linear import Normed, linear_added, linear_gated
from services.common.model.spec import Beside, Dense, Experts, StackSpec
from services.common.model.weights.ffn_weights import DenseWeights, ExpertWeights, FfnWeights

if TYPE_CHECKING:
    from services.common.model.gpu.mixture import Mixture


@dataclass(frozen=True)
class SwiGlu:
    """Two products, one of which gates the other, and a third back to the stream (Shazeer 2020)."""

    weights: DenseWeights
    spec: StackSpec

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """The last product, its sum with the stream and the norm are one launch."""
        own, eps = self.weights, self.spec.norm_eps
        inner_TI = linear_gated(normed, own.gate_up_FD, eps)
        return linear_added(
            inner_TI, own.down_DF, stream_TD, next_norm_D, eps, offset=self.spec.norm_offset, squares_T=squares_T
        )


def kernel_ffn(weights: FfnWeights, record: Dense | Experts | Beside, spec: StackSpec) -> "SwiGlu | Mixture":
    """Return the feed-forward part of a layer."""
    if isinstance(weights, DenseWeights):
        return SwiGlu(weights, spec)
    from services.common.model.gpu.mixture import Mixture

    assert isinstance(record, Experts) and isinstance(weights, ExpertWeights), "weights of experts go with their record"
    return Mixture(weights, record, spec)
