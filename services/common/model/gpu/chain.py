"""One step of a chain of drafts by kernels, and the keys and values that a target writes for it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from services.common.kernels.linear import Normed, linear, linear_added, linear_gates
from services.common.kernels.linear.weight import Weight
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Mask, Span, attend_block
from services.common.kernels.store_qkv import project_qkv
from services.common.kernels.store_qkv.kernel import store_qkv
from services.common.model.gpu.ffn import kernel_ffn
from services.common.model.spec import StackSpec
from services.common.model.weights.weights import LayerWeights

_UNBOUNDED = 1 << 24
"""A window that no context fills: it lets a mask name the first position that rows see."""


class KernelNorm(nn.Module):
    """RMSNorm of rows."""

    def __init__(self, weight_D: Tensor, eps: float, offset: float) -> None:
        super().__init__()
        self.weight_D, self.eps, self.offset = weight_D, eps, offset

    def forward(self, rows_TD: Tensor) -> Tensor:
        """Return rows of their size."""
        return rms_norm(rows_TD, self.weight_D, self.eps, self.offset)


class KernelProduct(nn.Module):
    """A product of rows whose bits do not depend on how many there are."""

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, rows_TD: Tensor) -> Tensor:
        """Return `rows @ weight.T`, [T, F]."""
        return linear(rows_TD, self.weight)


@dataclass(frozen=True)
class ChainRoom:
    """Paged context of B sequences, and room for the keys and values of K steps, a block of one place for each.

    `spans` are what the row of each step sees: the context from position 1 on, which has a state before it, and the
    chain's rows up to its own.
    """

    kv_2NSHD: Tensor
    own_2T1HD: Tensor
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, kv_2NSHD: Tensor, span: Span) -> "ChainRoom":
        """Make room for a plan of K rows for each sequence."""
        count, size = span.positions_BW.numel(), kv_2NSHD.shape[3:]
        # A window ends below each row's position: with this one it is 1 for all, or 0 where there is no context.
        first_B1 = (_UNBOUNDED - 1 + span.lengths_B.clamp(max=1))[:, None]
        seen = replace(span, width=1, positions_BW=first_B1, mask=Mask(_UNBOUNDED))
        spans = tuple(replace(seen, reach_B=span.lengths_B + step + 1) for step in range(span.width))
        return cls(kv_2NSHD, kv_2NSHD.new_empty((2, count, 1, *size)), spans)

    def attend(self, q_BHD: Tensor, step: int) -> Tensor:
        """Return the mixed rows [B, F] of a step, whose keys and values are in the room."""
        batch, steps = len(q_BHD), len(self.spans)
        keys_BKHD, values_BKHD = self.own_2T1HD.view(2, batch, steps, *self.own_2T1HD.shape[3:])
        return attend_block(q_BHD[:, None], keys_BKHD, values_BKHD, self.kv_2NSHD, self.spans[step]).flatten(0, 1)


class KernelChain:
    """The layer of a chain, between what its kind makes of its inputs and the last norm."""

    def __init__(
        self, spec: StackSpec, entry: nn.Module, layer: LayerWeights, norm_D: Tensor, recycles_normed: bool
    ) -> None:
        (record,) = spec.layers
        self._eps, self._offset = spec.norm_eps, spec.norm_offset
        self._entry, self._layer, self._norm_D, self._recycles_normed = entry, layer, norm_D, recycles_normed
        self._ffn = kernel_ffn(layer.ffn, record.ffn, spec)

    def room(self, kv_2NSHD: Tensor, span: Span) -> ChainRoom:
        """Make room for a plan of K rows for each sequence."""
        return ChainRoom.of(kv_2NSHD, span)

    def __call__(
        self, embedded_BD: Tensor, before_BD: Tensor, rotation: Rotation, room: ChainRoom, step: int
    ) -> tuple[Tensor, Tensor]:
        """Return what the head scores, and the state that the next step takes, both [B, D]."""
        own, eps, offset = self._layer.attention, self._eps, self._offset
        entered_BX, stream_BD = self._entry(embedded_BD, before_BD)
        slots_B = torch.arange(len(embedded_BD), device=embedded_BD.device) * len(room.spans) + step
        normed = Normed(entered_BX)
        q_BHD = project_qkv(
            normed, own.qkv_FD, own.head_norm_HD, rotation, room.own_2T1HD, slots_B, eps, own.bias_F, offset
        )
        mixed_BF = room.attend(q_BHD, step)
        if own.gate_FD is not None:
            mixed_BF = linear_gates(normed, own.gate_FD, mixed_BF, eps)
        # The stream is a state that a caller may keep.
        normed, stream_BD = linear_added(
            mixed_BF, own.o_DF, stream_BD, self._layer.post_norm_D, eps, keep=True, offset=offset
        )
        squares_B = torch.zeros(len(stream_BD), dtype=torch.int64, device=stream_BD.device)
        _, stream_BD = self._ffn(normed, stream_BD, self._norm_D, squares_B, None)
        hidden_BD = rms_norm(stream_BD, self._norm_D, eps, offset)
        return hidden_BD, hidden_BD if self._recycles_normed else stream_BD


class KernelChainRows:
    """Keys and values of a target's rows for a chain."""

    def __init__(self, spec: StackSpec, entry: nn.Module, layer: LayerWeights) -> None:
        attention, weights = spec.attention, layer.attention
        queries = attention.heads * attention.head_dim
        assert isinstance(weights.qkv_FD, Tensor), "eight bits are for drafts"
        bias_F, norm_HD = weights.bias_F, weights.head_norm_HD
        self._entry, self.kv_FD = entry, weights.qkv_FD[queries:].clone()
        self._bias_F = None if bias_F is None else bias_F[queries:].clone()
        self._norm_HD = None if norm_HD is None else norm_HD[attention.heads :].clone()
        self._eps, self._offset = spec.norm_eps, spec.norm_offset

    def __call__(
        self, embedded_TD: Tensor, before_TD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor
    ) -> None:
        """Write them at the rows' slots."""
        entered_TX, _ = self._entry(embedded_TD, before_TD)
        mixed = Normed(linear(entered_TX, self.kv_FD))
        store_qkv(mixed, self._norm_HD, rotation, kv_2NSHD, slots_T, self._eps, self._bias_F, self._offset)
