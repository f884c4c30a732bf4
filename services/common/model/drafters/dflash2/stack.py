"""Blocks with a grouped dynamic convolution before and behind each sublayer.

A convolution's kernels depend on the normalised rows that enter the sublayer; those behind it are of the same product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.block_conv import block_conv, block_conv_normed
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.embedding import embedding
from services.common.kernels.linear import Normed, linear, linear_gated
from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rms_norm.reference import rms_norm as host_norm
from services.common.kernels.rope import Rotation
from services.common.model.cpu.cpu import HostBlockAttention, Places
from services.common.model.cpu.cpu_ffn import HostSwiGlu
from services.common.model.cpu.host_stack import stack_of
from services.common.model.drafters.spec import LayerTensors
from services.common.model.gpu.layers import BlockAttention
from services.common.model.spec import StackSpec
from services.common.model.stack import Stack
from services.common.model.states.states import LayerState, Rows, SpanPlan
from services.common.model.weights.weights import LayerWeights

host_conv = block_conv.reference  # TorchScript takes a plain function


@dataclass(frozen=True)
class ConvWeights:
    """The fixed kernels before and behind a sublayer, and the product that gives what rows add to both."""

    base_2KD: Tensor
    projection_FD: Tensor


Convs = Sequence[tuple[ConvWeights, ConvWeights]]
"""Of each layer: those of its attention and of its feed-forward part."""


def conv_stack(tensors: LayerTensors, convs: Convs) -> Stack:
    """Return the blocks on the device of their weights."""
    spec, layers, norm_D = tensors.spec, tensors.layers, tensors.norm_D
    if on_kernel(norm_D):
        attentions = [
            BlockAttention(layer.attention, spec, view) for layer, view in zip(layers, tensors.views, strict=True)
        ]
        return ConvStack(tensors, convs, attentions)
    norms = [layer.input_norm_D for layer in layers] + [norm_D]
    blocks = [
        HostConvLayer(HostBlockAttention(layer.attention, spec, view), layer, pair, next_norm_D, spec)
        for layer, view, pair, next_norm_D in zip(layers, tensors.views, convs, norms[1:], strict=True)
    ]
    return stack_of(blocks, norms[0], spec)


class HostConv(nn.Module):
    """A convolution on a CPU."""

    taps: Final[int]

    def __init__(self, weights: ConvWeights) -> None:
        super().__init__()
        self.base_2KD, self.projection = weights.base_2KD, product(weights.projection_FD)
        self.taps = weights.base_2KD.shape[1]

    def forward(self, normed_TD: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Return the rows that enter the sublayer [T, D], and the kernels behind it [B, W, K, G]."""
        rows_BWD = normed_TD.view(batch, -1, normed_TD.shape[1])
        delta_BW2KG = self.projection(normed_TD).view(batch, rows_BWD.shape[1], 2, self.taps, -1)
        entering_BWD = host_conv(rows_BWD, delta_BW2KG[:, :, 0], self.base_2KD[0])
        return entering_BWD.flatten(0, 1), delta_BW2KG[:, :, 1]

    def behind(self, rows_TD: Tensor, delta_BWKG: Tensor, stream_TD: Tensor) -> Tensor:
        """Return the stream [T, D] with the sublayer's convolved rows added."""
        shape = [delta_BWKG.shape[0], delta_BWKG.shape[1], rows_TD.shape[1]]
        added_BWD = host_conv(rows_TD.view(shape), delta_BWKG, self.base_2KD[1], stream_TD.view(shape))
        return added_BWD.flatten(0, 1)


class HostConvLayer(nn.Module):
    """One block on a CPU, with the norm that comes after it."""

    offset: Final[float]

    def __init__(
        self,
        mixer: nn.Module,
        layer: LayerWeights,
        convs: tuple[ConvWeights, ConvWeights],
        next_norm_D: Tensor,
        spec: StackSpec,
    ) -> None:
        super().__init__()
        self.mixer, self.o, self.ffn = mixer, product(layer.mixer.o_DF), HostSwiGlu(layer.dense)
        self.around_mixer, self.around_ffn = HostConv(convs[0]), HostConv(convs[1])
        self.post_norm_D, self.next_norm_D = layer.post_norm_D, next_norm_D
        self.eps, self.offset = spec.norm_eps, spec.norm_offset

    def forward(
        self, normed_TD: Tensor, stream_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor],
        last_E: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normed rows and residual stream after the block; a row's convolution needs the rows before it."""
        batch = places.reads[0].shape[0]
        entering_TD, delta = self.around_mixer(normed_TD, batch)
        mixed_TF = self.mixer(entering_TD, places, state, rooms)
        stream_TD = self.around_mixer.behind(self.o(mixed_TF), delta, stream_TD)
        entering_TD, delta = self.around_ffn(host_norm(stream_TD, self.post_norm_D, self.eps, self.offset), batch)
        stream_TD = self.around_ffn.behind(self.ffn(entering_TD), delta, stream_TD)
        if last_E is not None:
            stream_TD = stream_TD.index_select(0, last_E)
        return host_norm(stream_TD, self.next_norm_D, self.eps, self.offset), stream_TD


class ConvStack:
    """The blocks by kernels."""

    def __init__(self, tensors: LayerTensors, convs: Convs, attentions: Sequence[BlockAttention]) -> None:
        self._spec, self._layers, self._norm_D = tensors.spec, tensors.layers, tensors.norm_D
        self._convs, self._attentions = convs, attentions

    def __call__(
        self, ids_T: Tensor, embed_VD: Tensor, rows: Rows, rotations: Sequence[Rotation], states: Sequence[LayerState],
        taps: Sequence[int] = (), plans: Sequence[SpanPlan] = (),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """As `Stack`, of a drafter: nothing is tapped."""
        assert not taps, "a drafter's streams are not tapped"
        batch, eps = len(rows.parts[0].rows_B), self._spec.norm_eps
        stream_TD = embedding(ids_T, embed_VD, self._spec.embed_scale)
        norms = [*(layer.input_norm_D for layer in self._layers[1:]), self._norm_D]
        normed_TD = rms_norm(stream_TD, self._layers[0].input_norm_D, eps, self._spec.norm_offset)
        layers = zip(self._layers, self._convs, self._attentions, states, norms, strict=True)
        for layer, convs, attention, state, next_norm_D in layers:
            entering_TD, delta = _entering(normed_TD, convs[0], batch)
            mixed_TF = attention(Normed(entering_TD), rows, rotations, state, plans)
            around = delta, convs[0].base_2KD[1]
            stream_TD, normed_TD = self._behind(
                linear(mixed_TF, layer.mixer.o_DF), *around, stream_TD, layer.post_norm_D
            )
            entering_TD, delta = _entering(normed_TD, convs[1], batch)
            inner_TI = linear_gated(Normed(entering_TD), layer.dense.gate_up_FD, eps)
            around = delta, convs[1].base_2KD[1]
            stream_TD, normed_TD = self._behind(linear(inner_TI, layer.dense.down_DF), *around, stream_TD, next_norm_D)
        hidden_ED = rows.last(normed_TD)
        return hidden_ED, hidden_ED.new_empty((len(ids_T), 0))

    def _behind(
        self, rows_TD: Tensor, delta_BWKG: Tensor, base_KD: Tensor, stream_TD: Tensor, norm_D: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the stream [T, D] with a sublayer's convolved rows added, and its norm."""
        shape = torch.Size([*delta_BWKG.shape[:2], rows_TD.shape[1]])
        stream_BWD, normed_BWD = block_conv_normed(
            rows_TD.view(shape), delta_BWKG, base_KD, stream_TD.view(shape), norm_D, self._spec.norm_eps,
            self._spec.norm_offset,
        )  # fmt: skip
        return stream_BWD.flatten(0, 1), normed_BWD.flatten(0, 1)


def _entering(normed_TD: Tensor, conv: ConvWeights, batch: int) -> tuple[Tensor, Tensor]:
    """Return the rows that enter a sublayer [T, D], and the kernels behind it [B, W, K, G]."""
    rows_BWD = normed_TD.view(batch, -1, normed_TD.shape[1])
    shape = (*rows_BWD.shape[:2], 2, conv.base_2KD.shape[1], -1)
    delta_BW2KG = linear(normed_TD, conv.projection_FD).view(shape)
    return block_conv(rows_BWD, delta_BW2KG[:, :, 0], conv.base_2KD[0]).flatten(0, 1), delta_BW2KG[:, :, 1]
