"""The blocks that targets and drafters share, by kernels: a mixer, a feed-forward part and the residual stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from services.common.kernels.ahead import all_layers
from services.common.kernels.embedding import begin_rows
from services.common.kernels.head_gates import gate_heads
from services.common.kernels.linear import Normed, linear, linear_added, linear_gates, linear_normed
from services.common.kernels.linear.weight import Weight
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.sandwich import add_normed
from services.common.kernels.span_attention import attend_block, attend_span
from services.common.kernels.span_attention.projected import attend_projected
from services.common.kernels.store_qkv import project_qkv
from services.common.kernels.store_qkv.kernel import store_qkv
from services.common.model.gpu.delta_mixer import DeltaMixer
from services.common.model.gpu.ffn import layer_ffn
from services.common.model.spec import Attention, LayerSpec, StackSpec
from services.common.model.states.states import LayerState, Rows, SpanPlan
from services.common.model.weights.delta_weights import DeltaWeights
from services.common.model.weights.ffn_weights import ExpertWeights
from services.common.model.weights.weights import AttentionWeights, LayerWeights

_TOLD_OF_A_KIND = 2


class Mixer(Protocol):
    """Mixes the rows of each sequence with its past."""

    def __call__(
        self, normed: Normed, rows: Rows, rotations: Sequence[Rotation], state: LayerState, plans: Sequence[SpanPlan]
    ) -> Tensor:
        """Return the mixed rows [T, F], before their output product; leave the sequences' state as after them.

        `rotations` are those of each group of attention, `plans` those of recurrent layers, one for each span.
        """
        ...


class Ffn(Protocol):
    """The part of a block that sees one row at a time."""

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """Add to the stream; return the next norm and the new stream. Do not read the stream handed in afterwards.

        `live_T` says which rows are no padding; None where no part of the stack asks.
        """
        ...


@dataclass(frozen=True)
class SpanAttention:
    """A target's attention: rows store their keys and values and attend causally; a product may gate them then.

    `record` is that of the layer, one of the stack's groups.
    """

    weights: AttentionWeights
    spec: StackSpec
    record: Attention

    def __call__(
        self, normed: Normed, rows: Rows, rotations: Sequence[Rotation], state: LayerState, plans: Sequence[SpanPlan]
    ) -> Tensor:
        """`state` is paged K/V [2, N, S, Hkv, Dh], of codes with their exponents."""
        group, scale = self.spec.groups.index(self.record), self.record.scale
        kv_2NSHD, exponents_2NSH = state[0], state[1] if len(state) > 1 else None
        both_TF = None if self.weights.both_FD is None else linear(normed.rows_TD, self.weights.both_FD)
        mixed_TF = None
        if len(state) == 1:
            mixed_TF = self._at_once(normed, rows, group, rotations[group], kv_2NSHD, both_TF)
            if mixed_TF is not None and both_TF is not None:
                return mixed_TF
        if mixed_TF is None:
            slots_T, v_norm = rows.places(group), self.record.v_norm
            q_THD = self._stored(normed, both_TF, rotations[group], kv_2NSHD, slots_T, exponents_2NSH, v_norm)
            mixed_TF = torch.empty_like(q_THD).flatten(1)
            mine = zip(rows.seen(group), rows.split(q_THD), rows.split(mixed_TF), strict=True)
            for span, (_, q_BWHD), (_, room_BWF) in mine:
                attend_span(q_BWHD, kv_2NSHD, span, room_BWF, exponents_2NSH, scale)
        return self._gated(normed, mixed_TF, both_TF)

    @property
    def _lines(self) -> int:
        """Of queries, keys and values."""
        return (self.record.heads + 2 * self.record.kv_heads) * self.record.head_dim

    def _stored(
        self, normed: Normed, both_TF: Tensor | None, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor,
        exponents_2NSH: Tensor | None, v_norm: bool,
    ) -> Tensor:  # fmt: skip
        """Return the queries [T, Hq, Dh]; keys and values go to their slots."""
        own, spec = self.weights, self.spec
        if both_TF is None:
            return _projected(normed, own, rotation, kv_2NSHD, slots_T, spec, exponents_2NSH, v_norm)
        mixed, eps, offset = Normed(both_TF[:, : self._lines], normed.squares_T), spec.norm_eps, spec.norm_offset
        return store_qkv(
            mixed, own.head_norm_HD, rotation, kv_2NSHD, slots_T, eps, own.bias_F, offset, normed.width,
            exponents_2NSH, v_norm,
        )  # fmt: skip

    def _gated(self, normed: Normed, mixed_TF: Tensor, both_TF: Tensor | None) -> Tensor:
        """Multiply the mixed rows by gates: of heads, which the first product made, or of a product of their own."""
        gate_FD, eps = self.weights.gate_FD, self.spec.norm_eps
        if gate_FD is None:
            return mixed_TF
        if both_TF is not None:
            return gate_heads(mixed_TF, self._gates(both_TF), normed, eps)
        return linear_gates(normed, gate_FD, mixed_TF, eps)

    def _gates(self, both_TF: Tensor) -> Tensor:
        return both_TF[:, self._lines :][:, : self.record.heads]

    def _at_once(
        self, normed: Normed, rows: Rows, group: int, rotation: Rotation, kv_2NSHD: Tensor, both_TF: Tensor | None
    ) -> Tensor | None:
        """Return the mixed rows where one kernel takes them from the product to their end, gates of heads among it."""
        if len(rows.parts) > 1 or self.record.scale is not None or self.record.v_norm:
            return None
        (span,), own, spec = rows.seen(group), self.weights, self.spec
        weight_FD, mixed_TF, gates_TH = own.qkv_FD, None, None
        if own.both_FD is not None and both_TF is not None:
            weight_FD, mixed_TF, gates_TH = own.both_FD, both_TF[:, : self._lines], self._gates(both_TF)
        return attend_projected(
            normed, weight_FD, own.head_norm_HD, rotation, kv_2NSHD, span, spec.norm_eps, own.bias_F, spec.norm_offset,
            mixed_TF, gates_TH,
        )  # fmt: skip


@dataclass(frozen=True)
class BlockAttention:
    """A drafter's: rows attend to the context and to one another by one of their views, and leave nothing behind."""

    weights: AttentionWeights
    spec: StackSpec
    view: int

    def __call__(
        self, normed: Normed, rows: Rows, rotations: Sequence[Rotation], state: LayerState, plans: Sequence[SpanPlan]
    ) -> Tensor:
        """`state` is the paged context K/V [2, N, S, Hkv, Dh]."""
        (part,), (kv_2NSHD,), (rotation,) = rows.parts, state, rotations
        size = kv_2NSHD.shape[3:]
        own_2T1HD = normed.rows_TD.new_empty((2, part.span.count, 1, *size))
        q_THD = _projected(normed, self.weights, rotation, own_2T1HD, rows.slots_T, self.spec)
        shape = part.span.positions_BW.shape
        k_BWHD, v_BWHD = own_2T1HD.view(2, *shape, *size)
        view, gate_FD = rows.views[self.view], self.weights.gate_FD
        mixed_TF = attend_block(q_THD.unflatten(0, shape), k_BWHD, v_BWHD, kv_2NSHD, view).flatten(0, 1)
        if gate_FD is None:
            return mixed_TF
        return gate_heads(mixed_TF, linear_normed(normed, gate_FD, self.spec.norm_eps))


def _projected(
    normed: Normed, weights: AttentionWeights, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, spec: StackSpec,
    exponents_2NSH: Tensor | None = None, v_norm: bool = False,
) -> Tensor:  # fmt: skip
    """Return the queries [T, Hq, Dh]; keys and values go to their slots."""
    qkv_FD, norm_HD, eps, offset = weights.qkv_FD, weights.head_norm_HD, spec.norm_eps, spec.norm_offset
    return project_qkv(
        normed, qkv_FD, norm_HD, rotation, kv_2NSHD, slots_T, eps, weights.bias_F, offset, exponents_2NSH, v_norm
    )


@dataclass(frozen=True)
class Layer:
    """One block between two norms of the stream.

    With `mixed_norm_D` the mixer's result is normalised before it is added. Rows may be `routed` to experts then.
    """

    mixer: Mixer
    o_DF: Weight
    post_norm_D: Tensor
    ffn: Ffn
    mixed_norm_D: Tensor | None = None
    routed: bool = False

    def add(
        self, mixed_TF: Tensor, stream_TD: Tensor, eps: float, keep: bool, offset: float, squares_T: Tensor
    ) -> tuple[Normed, Tensor]:
        """Return the norm before the feed-forward part, and the stream, which is the old one's memory unless `keep`."""
        if self.mixed_norm_D is None:
            given = self.o_DF, stream_TD, self.post_norm_D, eps, keep, offset, squares_T
            return linear_added(mixed_TF, *given, routed=self.routed)
        mixed_TD = linear(mixed_TF, self.o_DF)
        return add_normed(mixed_TD, stream_TD, self.mixed_norm_D, self.post_norm_D, squares_T, eps, offset)


def kernel_mixer(layer: LayerWeights, record: LayerSpec, spec: StackSpec) -> Mixer:
    """Return the mixer of a target's layer."""
    if isinstance(layer.mixer, DeltaWeights):
        assert spec.delta is not None, "weights of a recurrent layer go with its record"
        return DeltaMixer(layer.mixer, spec.delta, spec.norm_eps)
    assert isinstance(record.mixer, Attention), "weights of attention go with its record"
    return SpanAttention(layer.mixer, spec, record.mixer)


class KernelStack:
    """Blocks over one residual stream."""

    def __init__(
        self,
        spec: StackSpec,
        layers: Sequence[LayerWeights],
        norm_D: Tensor,
        mixers: Sequence[Mixer],
    ) -> None:
        """`mixers` are those of the layers."""
        self._eps, self._offset, self._embed_scale = spec.norm_eps, spec.norm_offset, spec.embed_scale
        self._layers = [
            Layer(
                mixer, layer.mixer.o_DF, layer.post_norm_D, layer_ffn(layer, record, spec), layer.mixed_norm_D,
                isinstance(layer.ffn, ExpertWeights),
            )
            for mixer, layer, record in zip(mixers, layers, spec.layers, strict=True)
        ]  # fmt: skip
        self._telling = _telling(spec.layers)
        self._routes = spec.routes
        self._norms = [layer.input_norm_D for layer in layers] + [norm_D]

    def __call__(
        self, ids_T: Tensor, embed_VD: Tensor, rows: Rows, rotations: Sequence[Rotation], states: Sequence[LayerState],
        taps: Sequence[int] = (), plans: Sequence[SpanPlan] = (),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """As `Stack`."""
        marked = (rows.slots_T, rows.first_slot) if self._routes else ()
        stream_TD, squares_NT, live_T = begin_rows(ids_T, embed_VD, self._embed_scale, 2 * len(self._layers), *marked)
        normed = Normed(self._norm(stream_TD, self._norms[0]))
        tapped: dict[int, Tensor] = {}
        last = len(self._layers) - 1
        for index in self._running(taps):
            layer, state = self._layers[index], states[index]
            mixed_TF = layer.mixer(normed, rows, rotations, state, plans)
            if index == last and last not in taps:
                mixed_TF, stream_TD = rows.last(mixed_TF), rows.last(stream_TD)
                squares_NT = squares_NT[:, : len(stream_TD)]
                live_T = None if live_T is None else rows.last(live_T[:, None]).flatten()
            # A tapped stream is read again at the end.
            keep = index - 1 in tapped
            normed, stream_TD = layer.add(mixed_TF, stream_TD, self._eps, keep, self._offset, squares_NT[2 * index])
            normed, stream_TD = layer.ffn(normed, stream_TD, self._norms[index + 1], squares_NT[2 * index + 1], live_T)
            if index in taps:
                tapped[index] = stream_TD
        hidden_ED = self._norm(stream_TD, self._norms[-1])
        if not taps:
            return hidden_ED, hidden_ED.new_empty((len(ids_T), 0))
        if last in taps:
            tapped[last], hidden_ED = hidden_ED, rows.last(hidden_ED)
        return hidden_ED, torch.cat([tapped[index] for index in taps], -1)

    def _running(self, taps: Sequence[int]) -> Sequence[int]:
        """The layers that run: all, but before a step is recorded those that launch all there are."""
        if all_layers():
            return range(len(self._layers))
        beside = {index for tap in taps for index in (tap, tap + 1)}
        return sorted(index for index in self._telling | beside if index < len(self._layers))

    def _norm(self, stream_TD: Tensor, weight_D: Tensor) -> Tensor:
        return rms_norm(stream_TD, weight_D, self._eps, self._offset)


def _telling(layers: Sequence[LayerSpec]) -> frozenset[int]:
    """Return the first two layers of each kind, and the last layer: what others launch, these launch too."""
    kinds: list[LayerSpec] = []
    found = {len(layers) - 1}
    for index, layer in enumerate(layers):
        if kinds.count(layer) < _TOLD_OF_A_KIND:
            kinds.append(layer)
            found.add(index)
    return frozenset(found)
