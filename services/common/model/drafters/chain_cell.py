"""One step of a chain: a token and the state before it become a hidden state and the next state. Made for TorchScript.

A chain has one layer, so keys and values of a position follow from its token and the state before it alone.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm.reference import add_rms_norm, rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope
from services.common.kernels.span_attention import Span
from services.common.kernels.span_attention.reference import attend, gathered, room_for
from services.common.kernels.torchscript import compiled
from services.common.model.cpu.cpu import HostMixer
from services.common.model.cpu.cpu_ffn import host_ffn
from services.common.model.drafters.spec import ChainSpec
from services.common.model.gpu.chain import KernelChain, KernelNorm, KernelProduct
from services.common.model.weights.weights import AttentionWeights, LayerWeights


@dataclass(frozen=True)
class ChainParts:
    """What a kind's file holds.

    `fuse` makes states [T, D] of the target's features [T, F]. `entry` makes of embedded tokens and states [T, D] what
    queries, keys and values are products of, and the residual stream. With `recycles_normed` the next state is the
    hidden state itself, else the stream before its norm.
    """

    fuse: nn.Module
    entry: nn.Module
    layer: LayerWeights
    norm_D: Tensor
    recycles_normed: bool


class HostNorm(nn.Module):
    """RMSNorm of rows on a CPU."""

    def __init__(self, weight_D: Tensor, eps: float, offset: float) -> None:
        super().__init__()
        self.weight_D, self.eps, self.offset = weight_D, eps, offset

    def forward(self, rows_TD: Tensor) -> Tensor:
        """Return rows of their size."""
        return rms_norm(rows_TD, self.weight_D, self.eps, self.offset)


def norm_of(weight_D: Tensor, eps: float, offset: float = 0.0) -> nn.Module:
    """Return the norm on the device of its weight."""
    return (KernelNorm if on_kernel(weight_D) else HostNorm)(weight_D, eps, offset)


def product_of(weight_FD: Tensor) -> nn.Module:
    """Return the product on the device of its weight."""
    return KernelProduct(weight_FD) if on_kernel(weight_FD) else product(weight_FD)


class Whole(nn.Module):
    """Features that are states already."""

    def forward(self, features_TF: Tensor) -> Tensor:
        """Return the features as they are."""
        return features_TF


class HostChainAttention(HostMixer):
    """Attention of one row of each sequence to gathered positions, and to the rows of the chain so far."""

    def forward(
        self, entered_BX: Tensor, rotation: Rotation, room_2BTHD: Tensor, place: int, bias_B11T: Tensor
    ) -> Tensor:
        """Return the mixed rows [B, F]; leave the rows' keys and values at `place` of the room."""
        turning = self.heads + self.kv_heads
        mixed_BHD = self.qkv(entered_BX).view(entered_BX.shape[0], turning + self.kv_heads, self.head_dim)
        turned_BHD = norm_rope(mixed_BHD[:, :turning], self.head_norm_HD, rotation, self.eps, self.offset)
        room_2BTHD[0, :, place] = turned_BHD[:, self.heads :]
        room_2BTHD[1, :, place] = mixed_BHD[:, turning:]
        seen_2BTHD, bias_B11T = room_2BTHD[:, :, : place + 1], bias_B11T[..., : place + 1]
        q_B1HD = turned_BHD[:, None, : self.heads]
        return attend(q_B1HD, seen_2BTHD[0], seen_2BTHD[1], bias_B11T, self.scale).flatten(0, 1)


class HostGatedChainAttention(nn.Module):
    """The same, multiplied by the sigmoid of a product of its own."""

    def __init__(self, attention: nn.Module, gate_FD: Tensor) -> None:
        super().__init__()
        self.attention, self.gate = attention, product(gate_FD)

    def forward(
        self, entered_BX: Tensor, rotation: Rotation, room_2BTHD: Tensor, place: int, bias_B11T: Tensor
    ) -> Tensor:
        """As the attention it holds, with the sigmoid of a gate of each number."""
        mixed_BF: Tensor = self.attention(entered_BX, rotation, room_2BTHD, place, bias_B11T)
        gate_BF: Tensor = self.gate(entered_BX)
        return mixed_BF * gate_BF.sigmoid()


class ChainCell(nn.Module):
    """The layer of a chain, between what its kind makes of its inputs and the last norm."""

    offset: Final[float]
    recycles_normed: Final[bool]

    def __init__(self, spec: ChainSpec, parts: ChainParts) -> None:
        super().__init__()
        layer, (record,) = parts.layer, spec.layers
        self.entry, self.attention = parts.entry, _attention(layer.attention, spec)
        self.o, self.ffn = product(layer.mixer.o_DF), host_ffn(layer.ffn, record, spec)
        self.post_norm_D, self.norm_D = layer.post_norm_D, parts.norm_D
        self.eps, self.offset, self.recycles_normed = spec.norm_eps, spec.norm_offset, parts.recycles_normed

    def forward(
        self, embedded_BD: Tensor, before_BD: Tensor, rotation: Rotation, room_2BTHD: Tensor, place: int,
        bias_B11T: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return what the head scores, and the state that the next step takes, both [B, D]."""
        entered_BX, stream_BD = self.entry(embedded_BD, before_BD)
        mixed_BF = self.attention(entered_BX, rotation, room_2BTHD, place, bias_B11T)
        normed_BD, stream_BD = add_rms_norm(self.o(mixed_BF), stream_BD, self.post_norm_D, self.eps, self.offset)
        hidden_BD, stream_BD = add_rms_norm(self.ffn(normed_BD), stream_BD, self.norm_D, self.eps, self.offset)
        return hidden_BD, hidden_BD if self.recycles_normed else stream_BD


class HostRoom:
    """Keys and values of the context [2, B, T + K, Hkv, Dh] with room for the chain's behind them, and what is seen."""

    def __init__(self, kv_2NSHD: Tensor, span: Span) -> None:
        index_BT = span.read_BT
        batch, self._count = index_BT.shape
        self._room_2BTHD = kv_2NSHD.new_empty((2, batch, self._count + span.width, *kv_2NSHD.shape[3:]))
        keys_BTHD, values_BTHD = gathered(kv_2NSHD, index_BT, room_for(kv_2NSHD, index_BT))
        self._room_2BTHD[0, :, : self._count], self._room_2BTHD[1, :, : self._count] = keys_BTHD, values_BTHD
        self._bias_B11T = visible_bias(self._count, span.lengths_B, span.width).to(kv_2NSHD.dtype)

    def at(self, step: int) -> tuple[Tensor, int, Tensor]:
        """Return the room, the step's place in it, and the bias of what is seen."""
        return self._room_2BTHD, self._count + step, self._bias_B11T


class HostChain:
    """The layer as a CPU runs it."""

    def __init__(self, spec: ChainSpec, parts: ChainParts) -> None:
        self._cell = compiled(ChainCell(spec, parts))

    def room(self, kv_2NSHD: Tensor, span: Span) -> HostRoom:
        """Gather the context of a plan of K rows."""
        return HostRoom(kv_2NSHD, span)

    def __call__(
        self, embedded_BD: Tensor, before_BD: Tensor, rotation: Rotation, room: HostRoom, step: int
    ) -> tuple[Tensor, Tensor]:
        """As `KernelChain`."""
        hidden_BD, state_BD = self._cell(embedded_BD, before_BD, rotation, *room.at(step))
        return hidden_BD, state_BD


def chain_cell(spec: ChainSpec, parts: ChainParts) -> HostChain | KernelChain:
    """Return the step on the device of its weights."""
    if on_kernel(parts.norm_D):
        return KernelChain(spec, parts.entry, parts.layer, parts.norm_D, parts.recycles_normed)
    return HostChain(spec, parts)


def _attention(weights: AttentionWeights, spec: ChainSpec) -> nn.Module:
    attention = HostChainAttention(weights, spec)
    return attention if weights.gate_FD is None else HostGatedChainAttention(attention, weights.gate_FD)


def visible_bias(count: int, lengths_B: Tensor, steps: int) -> Tensor:
    """Return the bias [B, 1, 1, count + steps]: of gathered positions those from 1 on below a length are seen.

    Position 0 has no state before it. A chain's own rows are all seen: those of later steps are cut off.
    """
    places_T = torch.arange(count)
    hidden_BT = (places_T < 1) | (places_T >= lengths_B[:, None])
    bias_BT = torch.zeros(len(lengths_B), count + steps)
    bias_BT[:, :count].masked_fill_(hidden_BT, float("-inf"))
    return bias_BT[:, None, None]
