"""Feed-forward parts by kernels."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from services.common.kernels.linear import Normed, linear, linear_added, linear_gated
from services.common.kernels.sandwich import add_normed
from services.common.model.spec import Beside, Dense, Experts, LayerSpec, StackSpec
from services.common.model.weights.ffn_weights import BesideWeights, DenseWeights, ExpertWeights, FfnWeights
from services.common.model.weights.weights import LayerWeights

if TYPE_CHECKING:
    from services.common.model.gpu.mixture import BesideMixture, Mixture


@dataclass(frozen=True)
class SwiGlu:
    """Two products, one of which gates the other, and a third back to the stream (Shazeer 2020); GeGLU with `gelu`."""

    weights: DenseWeights
    spec: StackSpec
    gelu: bool = False

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """The last product, its sum with the stream and the norm are one launch."""
        own, eps = self.weights, self.spec.norm_eps
        inner_TI = linear_gated(normed, own.gate_up_FD, eps, self.gelu)
        return linear_added(
            inner_TI, own.down_DF, stream_TD, next_norm_D, eps, offset=self.spec.norm_offset, squares_T=squares_T
        )


@dataclass(frozen=True)
class Sandwiched:
    """A dense part whose result is normalised before it is added; the stream is then scaled where there is a number."""

    weights: DenseWeights
    spec: StackSpec
    gelu: bool
    own_norm_D: Tensor
    scale_1: Tensor | None

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """The stream handed in is left as it is."""
        own, spec = self.weights, self.spec
        fed_TD = linear(linear_gated(normed, own.gate_up_FD, spec.norm_eps, self.gelu), own.down_DF)
        around = self.own_norm_D, next_norm_D
        return add_normed(fed_TD, stream_TD, *around, squares_T, spec.norm_eps, spec.norm_offset, self.scale_1)


def kernel_ffn(weights: FfnWeights, record: Dense | Experts | Beside, spec: StackSpec) -> "SwiGlu | Mixture":
    """Return the feed-forward part of a layer whose results are added as they are."""
    if isinstance(weights, DenseWeights):
        return SwiGlu(weights, spec, isinstance(record, Dense) and record.gelu)
    from services.common.model.gpu.mixture import Mixture

    assert isinstance(record, Experts) and isinstance(weights, ExpertWeights), "weights of experts go with their record"
    return Mixture(weights, record, spec)


def layer_ffn(
    layer: LayerWeights, record: LayerSpec, spec: StackSpec
) -> "SwiGlu | Mixture | Sandwiched | BesideMixture":
    """Return the feed-forward part of a target's layer."""
    if layer.fed_norm_D is None:
        return kernel_ffn(layer.ffn, record.ffn, spec)
    if isinstance(layer.ffn, DenseWeights):
        assert isinstance(record.ffn, Dense), "weights of a dense part go with its record"
        return Sandwiched(layer.ffn, spec, record.ffn.gelu, layer.fed_norm_D, layer.scale_1)
    from services.common.model.gpu.mixture import BesideMixture

    assert isinstance(layer.ffn, BesideWeights) and isinstance(record.ffn, Beside), "both parts go with their record"
    return BesideMixture(layer.ffn, record.ffn, spec, layer.fed_norm_D, layer.scale_1)
