"""What hybrids need beside the CPU path's blocks: the recurrent mixer, and attention with a gate."""

from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.gated_delta.blocks import DeltaConstants, gated_delta
from services.common.kernels.gated_delta.pointwise import sigmoid, silu, softplus
from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm.reference import rms_norm
from services.common.model.cpu.cpu import HostSpanAttention, Places
from services.common.model.spec import Attention, Delta, LayerSpec, StackSpec
from services.common.model.weights.delta_weights import DeltaWeights
from services.common.model.weights.weights import LayerWeights


class HostGatedAttention(nn.Module):
    """Attention whose mixed rows are multiplied by the sigmoid of a product of their own."""

    def __init__(self, attention: nn.Module, gate_FD: Tensor) -> None:
        super().__init__()
        self.attention, self.gate = attention, product(gate_FD)

    def forward(self, normed_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor]) -> Tensor:
        """As the attention's."""
        mixed_TF: Tensor = self.attention(normed_TD, places, state, rooms)
        gate_TF: Tensor = self.gate(normed_TD)
        return mixed_TF.mul_(sigmoid(gate_TF if gate_TF.dtype == torch.float64 else gate_TF.float()))


class HostHeadGates(nn.Module):
    """Attention whose heads are multiplied by the softplus of a product of their own."""

    heads: Final[int]

    def __init__(self, attention: nn.Module, gate_HD: Tensor) -> None:
        super().__init__()
        self.attention, self.gate, self.heads = attention, product(gate_HD), gate_HD.shape[0]

    def forward(self, normed_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor]) -> Tensor:
        """As the attention's."""
        mixed_TF: Tensor = self.attention(normed_TD, places, state, rooms)
        gate_TH: Tensor = self.gate(normed_TD)
        wide_TH = softplus(gate_TH if gate_TH.dtype == torch.float64 else gate_TH.float())
        gated_THD = mixed_TF.view(mixed_TF.shape[0], self.heads, -1).mul_(wide_TH.to(mixed_TF.dtype)[:, :, None])
        return gated_THD.flatten(1)


class HostDelta(nn.Module):
    """Gated DeltaNet: rows move a state, read it, and pass a norm that is gated by a product of their own."""

    def __init__(self, weights: DeltaWeights, delta: Delta, eps: float) -> None:
        super().__init__()
        self.into, self.norm_V, self.eps = product(weights.into_FD), weights.norm_V, eps
        self.conv_CK, self.decay_H, self.bias_H = weights.conv_CK, weights.decay_H, weights.bias_H
        self.k_heads, self.k_dim, self.v_dim, self.kept = delta.k_heads, delta.k_dim, delta.v_dim, delta.kept

    def forward(self, normed_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor]) -> Tensor:
        """Return the mixed rows [T, Hv * Dv]; `state` are the states and rings of all slots."""
        into_TF: Tensor = self.into(normed_TD)
        constants = DeltaConstants(self.conv_CK, self.decay_H, self.bias_H, self.k_heads, self.k_dim)
        read: list[Tensor] = []
        for index, rows_TC in enumerate(into_TF[:, : self.kept].split(places.counts)):
            read.append(gated_delta(rows_TC, constants, places.plans[index], state[0], state[1]))
        read_TF = read[0] if len(read) == 1 else torch.cat(read)
        normed_THV = rms_norm(read_TF.unflatten(1, [-1, self.v_dim]), self.norm_V.to(read_TF.dtype), self.eps)
        gate_TF = silu(into_TF[:, self.kept :].to(read_TF.dtype))
        return normed_THV.flatten(1).mul_(gate_TF).to(into_TF.dtype)


def host_mixer(layer: LayerWeights, record: LayerSpec, spec: StackSpec) -> nn.Module:
    """Return the mixer of a target's layer."""
    if isinstance(layer.mixer, DeltaWeights):
        assert spec.delta is not None, "weights of a recurrent layer go with its record"
        return HostDelta(layer.mixer, spec.delta, spec.norm_eps)
    assert isinstance(record.mixer, Attention), "weights of attention go with its record"
    attention = HostSpanAttention(layer.mixer, spec, record.mixer)
    if layer.mixer.gate_FD is None:
        return attention
    return (HostHeadGates if record.mixer.head_gates else HostGatedAttention)(attention, layer.mixer.gate_FD)
