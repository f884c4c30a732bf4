"""The blocks of the CPU path: a mixer, a feed-forward part and the residual stream, made for TorchScript.

Whole blocks are one program: otherwise Python between small operators would take most of a round.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from services.common.kernels.embedding.reference import embedding
from services.common.kernels.gated_delta.plan import BlockPlan
from services.common.kernels.linear.grouped.weight import GroupedWeight
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm.reference import add_rms_norm, rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope
from services.common.kernels.span_attention.reference import attend, attend_paged, gathered, room_for
from services.common.kernels.store_qkv.reference import store_qkv
from services.common.model.cpu.cpu_ffn import host_ffn
from services.common.model.spec import Attention, Beside, LayerSpec, StackSpec
from services.common.model.weights.weights import AttentionWeights, LayerWeights


class Places(NamedTuple):
    """Places of rows: a rotation and write indices for each group of attention, and each span's number of rows.

    For each view there are read indices and a mask. `plans` are those of recurrent layers, one for each span.
    """

    rotations: list[Rotation]
    writes: list[Tensor]
    counts: list[int]
    reads: list[Tensor]
    biases: list[Tensor | None]
    plans: list[BlockPlan]


class HostValueNorm(nn.Module):
    """A product of queries, keys and values, of which the heads of values are normalised, without a weight."""

    values: Final[int]

    def __init__(self, qkv: nn.Module, attention: Attention, eps: float) -> None:
        super().__init__()
        self.qkv, self.eps = qkv, eps
        self.kv_heads, self.values = attention.kv_heads, attention.kv_heads * attention.head_dim

    def forward(self, normed_TD: Tensor) -> Tensor:
        """Return queries, keys and values [T, F]."""
        mixed_TF: Tensor = self.qkv(normed_TD)
        values_TF = mixed_TF[:, -self.values :]
        values_TF.copy_(rms_norm(values_TF.unflatten(1, [self.kv_heads, -1]), None, self.eps).flatten(1))
        return mixed_TF


class HostMixer(nn.Module):
    """The base of both kinds of attention; `qkv` maps rows to queries, keys and values.

    `group` is the number of its record among the stack's groups, the first and only one if none is named.
    """

    offset: Final[float]
    group: Final[int]

    def __init__(self, weights: AttentionWeights, spec: StackSpec, attention: Attention | None = None) -> None:
        super().__init__()
        attention = spec.attention if attention is None else attention
        self.qkv, self.head_norm_HD = product(weights.qkv_FD, weights.bias_F), weights.head_norm_HD
        if attention.v_norm:
            self.qkv = HostValueNorm(self.qkv, attention, spec.norm_eps)
        self.eps, self.offset, self.group = spec.norm_eps, spec.norm_offset, spec.groups.index(attention)
        self.scale = attention.head_dim**-0.5 if attention.scale is None else attention.scale
        self.heads, self.kv_heads, self.head_dim = attention.heads, attention.kv_heads, attention.head_dim


class HostSpanAttention(HostMixer):
    """A target's attention: rows store their keys and values and attend causally.

    Behind products of rows in eight bits it adds in float64, as by codes: the rows that it leaves are rounded.
    """

    wide: Final[bool]

    def __init__(self, weights: AttentionWeights, spec: StackSpec, attention: Attention | None = None) -> None:
        super().__init__(weights, spec, attention)
        self.wide = isinstance(weights.qkv_FD, Int8Weight | GroupedWeight)

    def forward(self, normed_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor]) -> Tensor:
        """Return the mixed rows [T, F]; `state` is paged K/V, of codes with exponents, `rooms` hold what spans read."""
        mixed_TF, slots_T, kv_2NSHD = self.qkv(normed_TD), places.writes[self.group], state[0]
        exponents_2NSH = state[1] if len(state) > 1 else None
        rotation, view = places.rotations[self.group], self.group * len(places.counts)
        q_THD = store_qkv(
            mixed_TF, self.head_norm_HD, rotation, kv_2NSHD, slots_T, self.eps, None, self.offset, exponents_2NSH
        )
        mixed: list[Tensor] = []
        for q in q_THD.split(places.counts):
            read_BT, bias = places.reads[view], places.biases[view]
            q_BWHD = q.unflatten(0, [read_BT.shape[0], -1])
            mixed_BWF = attend_paged(
                q_BWHD, kv_2NSHD, exponents_2NSH, read_BT, rooms[view], bias, self.scale, self.wide
            )
            mixed.append(mixed_BWF.flatten(0, 1))
            view += 1
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


class HostBlockAttention(HostMixer):
    """A drafter's: the rows of its one span attend to the context and to one another by one of their views."""

    view: Final[int]

    def __init__(self, weights: AttentionWeights, spec: StackSpec, view: int) -> None:
        super().__init__(weights, spec)
        self.view = view

    def forward(self, normed_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor]) -> Tensor:
        """Return the mixed rows [T, F] and leave nothing behind; the first of `rooms` holds the context."""
        turning, read_BT = self.heads + self.kv_heads, places.reads[0]
        mixed_BWHD = self.qkv(normed_TD).view(read_BT.shape[0], -1, turning + self.kv_heads, self.head_dim)
        turning_THD = mixed_BWHD[:, :, :turning].flatten(0, 1)
        turned_THD = norm_rope(turning_THD, self.head_norm_HD, places.rotations[0], self.eps, self.offset)
        turned_BWHD = turned_THD.view(read_BT.shape[0], -1, turning, self.head_dim)
        keys_BTHD, values_BTHD = gathered(state[0], read_BT, rooms[0])
        keys_BTHD = torch.cat((keys_BTHD, turned_BWHD[:, :, self.heads :]), 1)
        values_BTHD = torch.cat((values_BTHD, mixed_BWHD[:, :, turning:]), 1)
        q_BWHD, bias = turned_BWHD[:, :, : self.heads], places.biases[self.view]
        return attend(q_BWHD, keys_BTHD, values_BTHD, bias, self.scale).flatten(0, 1)


class HostLayer(nn.Module):
    """One block, with the norm that comes after it."""

    offset: Final[float]

    def __init__(
        self, mixer: nn.Module, layer: LayerWeights, record: LayerSpec, next_norm_D: Tensor, spec: StackSpec
    ) -> None:
        super().__init__()
        self.mixer, self.o, self.ffn = mixer, product(layer.mixer.o_DF), host_ffn(layer.ffn, record, spec)
        self.post_norm_D, self.next_norm_D = layer.post_norm_D, next_norm_D
        self.eps, self.offset = spec.norm_eps, spec.norm_offset

    def forward(
        self, normed_TD: Tensor, stream_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor],
        last_E: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normed rows and residual stream after the block, both [T, D]; [E, D] with `last_E`, of these rows."""
        mixed_TF = self.mixer(normed_TD, places, state, rooms)
        if last_E is not None:
            mixed_TF, stream_TD = mixed_TF.index_select(0, last_E), stream_TD.index_select(0, last_E)
        normed_TD, stream_TD = add_rms_norm(self.o(mixed_TF), stream_TD, self.post_norm_D, self.eps, self.offset)
        return add_rms_norm(self.ffn(normed_TD), stream_TD, self.next_norm_D, self.eps, self.offset)


class HostSandwich(HostLayer):
    """A block in which the results of mixer and feed-forward part are normalised before they are added.

    A part that is `beside` a dense one takes the stream too.
    """

    beside: Final[bool]

    def __init__(
        self, mixer: nn.Module, layer: LayerWeights, record: LayerSpec, next_norm_D: Tensor, spec: StackSpec
    ) -> None:
        super().__init__(mixer, layer, record, next_norm_D, spec)
        self.mixed_norm_D, self.fed_norm_D, self.scale_1 = layer.mixed_norm_D, layer.fed_norm_D, layer.scale_1
        self.beside = isinstance(record.ffn, Beside)

    def forward(
        self, normed_TD: Tensor, stream_TD: Tensor, places: Places, state: list[Tensor], rooms: list[Tensor],
        last_E: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """As `HostLayer`."""
        mixed_TF = self.mixer(normed_TD, places, state, rooms)
        if last_E is not None:
            mixed_TF, stream_TD = mixed_TF.index_select(0, last_E), stream_TD.index_select(0, last_E)
        mixed_TD = rms_norm(self.o(mixed_TF), self.mixed_norm_D, self.eps, self.offset)
        normed_TD, stream_TD = add_rms_norm(mixed_TD, stream_TD, self.post_norm_D, self.eps, self.offset)
        fed_TD: Tensor = self.ffn(normed_TD, stream_TD) if self.beside else self.ffn(normed_TD)
        stream_TD = stream_TD + rms_norm(fed_TD, self.fed_norm_D, self.eps, self.offset)
        if self.scale_1 is not None:
            stream_TD = stream_TD * self.scale_1
        return rms_norm(stream_TD, self.next_norm_D, self.eps, self.offset), stream_TD


class HostBlocks(nn.Module):
    """Blocks over one residual stream."""

    offset: Final[float]
    embed_scale: Final[float]

    def __init__(self, layers: Sequence[nn.Module], first_norm_D: Tensor, spec: StackSpec) -> None:
        super().__init__()
        self.layers, self.first_norm_D = nn.ModuleList(layers), first_norm_D
        self.eps, self.offset, self.embed_scale = spec.norm_eps, spec.norm_offset, spec.embed_scale
        mixers = [layer.mixer for layer in spec.layers]
        self.paged = [mixers.index(own) for own in spec.groups]

    def forward(
        self, ids_T: Tensor, embed_VD: Tensor, places: Places, states: list[list[Tensor]], taps: list[int],
        last_E: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normalised hidden states [E, D], and the residual streams after `taps`, concatenated.

        The last block's is normalised: what Hugging Face calls its hidden states, and drafters were trained on.
        """
        stream_TD = embedding(ids_T, embed_VD, self.embed_scale)
        normed_TD = rms_norm(stream_TD, self.first_norm_D, self.eps, self.offset)
        rooms: list[Tensor] = []
        for first in self.paged:
            for _ in places.counts:
                rooms.append(room_for(states[first][0], places.reads[len(rooms)]))
        streams: list[Tensor] = []
        last = len(states) - 1
        for index, layer in enumerate(self.layers):
            kept = last_E if index == last and last not in taps else None
            normed_TD, stream_TD = layer(normed_TD, stream_TD, places, states[index], rooms, kept)
            streams.append(stream_TD)
        if len(taps) == 0:
            return normed_TD, normed_TD.new_empty([ids_T.shape[0], 0])
        streams[-1] = normed_TD
        if last_E is not None and last in taps:
            normed_TD = normed_TD.index_select(0, last_E)
        return normed_TD, torch.cat([streams[tap] for tap in taps], -1)
