"""The feed-forward parts of the CPU path, made for TorchScript."""

from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.experts.reference import combined, in_order, rated, routed, taken
from services.common.kernels.gated_delta.pointwise import sigmoid
from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm.reference import rms_norm
from services.common.kernels.swiglu.reference import geglu, swiglu
from services.common.model.spec import Beside, Dense, Experts, LayerSpec, StackSpec
from services.common.model.weights.ffn_weights import BesideWeights, DenseWeights, ExpertWeights, FfnWeights


class HostSwiGlu(nn.Module):
    """Two products, one of which gates the other by SiLU or GELU, and a third (Shazeer 2020)."""

    gelu: Final[bool]

    def __init__(self, weights: DenseWeights, gelu: bool = False) -> None:
        super().__init__()
        self.gelu = gelu
        self.gate_up, self.down = product(weights.gate_up_FD), product(weights.down_DF)

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        both_TF: Tensor = self.gate_up(normed_TD)
        added_TD: Tensor = self.down(geglu(both_TF) if self.gelu else swiglu(both_TF))
        return added_TD


class HostRouter(nn.Module):
    """Says which experts a row takes, and their weights."""

    count: Final[int]
    top_k: Final[int]
    renorm: Final[bool]
    cap: Final[float]
    factor: Final[float]

    def __init__(self, weights: ExpertWeights, experts: Experts) -> None:
        super().__init__()
        self.router_FD, self.bias_E, self.scale_E = weights.router_FD, weights.bias_E, weights.scale_E
        self.count, self.top_k, self.renorm = experts.count, experts.top_k, experts.renorm
        self.cap, self.factor = experts.cap, experts.factor

    def forward(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts [T, K] and their weights, which are wide."""
        logits_TE = in_order(x_TD, self.router_FD[: self.count])
        if self.bias_E is not None:
            ids_TK, weights_TK = rated(logits_TE, self.bias_E, self.top_k, self.cap)
        else:
            ids_TK, weights_TK = routed(logits_TE, self.top_k, self.renorm)
        if self.scale_E is not None:
            weights_TK = weights_TK * self.scale_E.to(weights_TK.dtype)[ids_TK]
        return ids_TK, weights_TK if self.factor == 1.0 else weights_TK * self.factor


class HostExperts(nn.Module):
    """A mixture of experts; one that all rows take, if there is one, comes after it (`HostShared`)."""

    gelu: Final[bool]

    def __init__(self, weights: ExpertWeights, experts: Experts) -> None:
        super().__init__()
        self.router, self.gelu = HostRouter(weights, experts), experts.gelu
        (self.gate_up_EFD, self.down_EDF), self.uses_E = weights.numbers, weights.uses_E

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        ids_TK, weights_TK = self.router(normed_TD)
        parts_TKD = taken(normed_TD, ids_TK, self.gate_up_EFD, self.down_EDF, self.gelu, self.uses_E)
        return combined(parts_TKD, weights_TK)


class HostAdded(nn.Module):
    """A mixture of experts and a part that all rows take as it is."""

    def __init__(self, weights: ExpertWeights, shared: DenseWeights, experts: Experts) -> None:
        super().__init__()
        self.experts, self.shared = HostExperts(weights, experts), HostSwiGlu(shared, experts.gelu)

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        mixed_TD: Tensor = self.experts(normed_TD)
        shared_TD: Tensor = self.shared(normed_TD)
        return mixed_TD + shared_TD


class HostShared(HostAdded):
    """The same, but that part is multiplied by the sigmoid of a product of its own."""

    def __init__(self, weights: ExpertWeights, shared: DenseWeights, experts: Experts) -> None:
        super().__init__(weights, shared, experts)
        self.gate_1D = weights.router_FD[experts.count : experts.count + 1]

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        mixed_TD: Tensor = self.experts(normed_TD)
        shared_TD: Tensor = self.shared(normed_TD)
        gate_T1 = in_order(normed_TD, self.gate_1D)
        wide_T1 = sigmoid(gate_T1 if gate_T1.dtype == torch.float64 else gate_T1.float())
        return mixed_TD + shared_TD.mul_(wide_T1.to(shared_TD.dtype))


class HostBeside(nn.Module):
    """A dense part, and a mixture of experts that takes the stream by a norm of its own; both results have norms."""

    def __init__(self, weights: BesideWeights, record: Beside, eps: float, offset: float) -> None:
        super().__init__()
        experts = weights.experts
        self.dense, self.router = HostSwiGlu(weights.dense, record.dense.gelu), HostRouter(experts, record.experts)
        (self.gate_up_EFD, self.down_EDF), self.gelu = experts.numbers, record.experts.gelu
        self.dense_norm_D, self.into_norm_D = weights.dense_norm_D, weights.into_norm_D
        self.mixed_norm_D = weights.mixed_norm_D
        self.eps, self.offset, self.uses_E = eps, offset, experts.uses_E

    def forward(self, normed_TD: Tensor, stream_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        ids_TK, weights_TK = self.router(rms_norm(stream_TD, None, self.eps))
        into_TD = rms_norm(stream_TD, self.into_norm_D, self.eps, self.offset)
        parts_TKD = taken(into_TD, ids_TK, self.gate_up_EFD, self.down_EDF, self.gelu, self.uses_E)
        mixed_TD = combined(parts_TKD, weights_TK)
        mixed_TD = rms_norm(mixed_TD, self.mixed_norm_D, self.eps, self.offset)
        return rms_norm(self.dense(normed_TD), self.dense_norm_D, self.eps, self.offset) + mixed_TD


def host_ffn(weights: FfnWeights, layer: LayerSpec, spec: StackSpec) -> nn.Module:
    """Return the feed-forward part of a layer."""
    record = layer.ffn
    if isinstance(weights, BesideWeights):
        assert isinstance(record, Beside), "weights of parts side by side go with their record"
        return HostBeside(weights, record, spec.norm_eps, spec.norm_offset)
    if isinstance(weights, DenseWeights):
        assert isinstance(record, Dense), "weights of a dense part go with its record"
        return HostSwiGlu(weights, record.gelu)
    assert isinstance(record, Experts), "weights of experts go with their record"
    if weights.shared is None:
        return HostExperts(weights, record)
    return (HostShared if record.shared_gated else HostAdded)(weights, weights.shared, record)
