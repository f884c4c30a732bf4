"""The feed-forward parts of the CPU path, made for TorchScript."""

from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.experts.reference import combined, in_order, routed, taken
from services.common.kernels.gated_delta.pointwise import sigmoid
from services.common.kernels.linear.product import product
from services.common.kernels.swiglu.reference import geglu, swiglu
from services.common.model.ffn_weights import DenseWeights, ExpertWeights
from services.common.model.spec import Dense, Experts


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


class HostExperts(nn.Module):
    """A mixture of experts; one that all rows take, if there is one, comes after it (`HostShared`)."""

    count: Final[int]
    top_k: Final[int]
    renorm: Final[bool]

    def __init__(self, weights: ExpertWeights, experts: Experts) -> None:
        super().__init__()
        self.router_FD, self.gate_up_EFD, self.down_EDF = weights.router_FD, weights.gate_up_EFD, weights.down_EDF
        self.count, self.top_k, self.renorm = experts.count, experts.top_k, experts.renorm

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        logits_TE = in_order(normed_TD, self.router_FD[: self.count])
        ids_TK, weights_TK = routed(logits_TE, self.top_k, self.renorm)
        parts_TKD = taken(normed_TD, ids_TK, self.gate_up_EFD, self.down_EDF)
        return combined(parts_TKD, weights_TK)


class HostShared(nn.Module):
    """A mixture of experts and a part that all rows take, times the sigmoid of a product of its own."""

    def __init__(self, weights: ExpertWeights, shared: DenseWeights, experts: Experts) -> None:
        super().__init__()
        self.experts, self.shared = HostExperts(weights, experts), HostSwiGlu(shared)
        self.gate_1D = weights.router_FD[experts.count : experts.count + 1]

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return what is added to the stream [T, D]."""
        mixed_TD: Tensor = self.experts(normed_TD)
        shared_TD: Tensor = self.shared(normed_TD)
        gate_T1 = in_order(normed_TD, self.gate_1D)
        wide_T1 = sigmoid(gate_T1 if gate_T1.dtype == torch.float64 else gate_T1.float())
        return mixed_TD + shared_TD.mul_(wide_T1.to(shared_TD.dtype))


def host_ffn(weights: DenseWeights | ExpertWeights, record: Dense | Experts) -> nn.Module:
    """Return the feed-forward part of a layer."""
    if isinstance(weights, DenseWeights):
        assert isinstance(record, Dense), "weights of a dense part go with its record"
        return HostSwiGlu(weights, record.gelu)
    assert isinstance(record, Experts), "weights of experts go with their record"
    return HostExperts(weights, record) if weights.shared is None else HostShared(weights, weights.shared, record)
