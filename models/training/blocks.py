"""A target's blocks: a mixer, by kind of layer, and a feed-forward part."""

from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from models.training.delta import GatedDelta
from models.training.network import Layer, Projections, Rotation, Span, fold, rotate
from models.training.settings import Shape

Cache = tuple[Tensor, Tensor]


class Mixer(Protocol):
    """Mixes the rows of each sequence with its past."""

    def __call__(self, x: Tensor, span: Span) -> Tensor:
        """Return the update [batch, rows, width] of whole sequences."""
        ...

    def new_cache(self, like: Tensor, batch: int, length: int) -> Cache:
        """Return what sequences of a length leave behind, in the type of `like`, empty."""
        ...

    def step(self, x: Tensor, span: Span, cache: Cache) -> Tensor:
        """Return the update of rows that follow those in the cache, and add them to it."""
        ...


class Attention(Projections):
    """Causal attention; that of a hybrid multiplies its output by a gate, which stands behind each head's queries."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, 1 if shape.delta is None else 2)
        self.gated = shape.delta is not None

    def forward(self, x: Tensor, span: Span) -> Tensor:
        """Return the update [batch, rows, width] of whole sequences."""
        k, v = self.keys_values(x, span.rotation)
        k, v = k.repeat_interleave(self.groups, dim=1), v.repeat_interleave(self.groups, dim=1)
        q, gate = self._gated_queries(x, span.rotation)
        return self._out(F.scaled_dot_product_attention(q, k, v, is_causal=True), gate)

    def new_cache(self, like: Tensor, batch: int, length: int) -> Cache:
        """Return zeroed keys and values."""
        size = (batch, self.k_proj.out_features // self.head_dim, length, self.head_dim)
        return like.new_zeros(size), like.new_zeros(size)

    def step(self, x: Tensor, span: Span, cache: Cache) -> Tensor:
        """Attend without copying the keys: the heads of a group become query rows."""
        keys, values = cache
        k, v = self.keys_values(x, span.rotation)
        keys[:, :, span.start : span.end], values[:, :, span.start : span.end] = k, v
        q, gate = self._gated_queries(x, span.rotation)
        rows = q.shape[2]
        q = fold(q, 1, self.groups).flatten(2, 3)
        mask = None if span.visible is None else span.visible.repeat(self.groups, 1)
        out = F.scaled_dot_product_attention(q, keys[:, :, : span.end], values[:, :, : span.end], attn_mask=mask)
        return self._out(fold(out, 2, rows).flatten(1, 2), gate)

    def _gated_queries(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor | None]:
        if not self.gated:
            return self.queries(x, rotation), None
        q, gate = fold(self.q_proj(x), -1, 2 * self.head_dim).transpose(1, 2).chunk(2, -1)
        return rotate(self.q_norm(q), rotation), gate

    def _out(self, mixed: Tensor, gate: Tensor | None) -> Tensor:
        gated = mixed if gate is None else mixed * torch.sigmoid(gate)
        out: Tensor = self.o_proj(gated.transpose(1, 2).flatten(-2))
        return out


class Block(Layer):
    """One layer of a target."""

    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__(shape)
        recurrent = shape.recurrent(index)
        self.name = "linear_attn" if recurrent else "self_attn"
        self.add_module(self.name, GatedDelta(shape) if recurrent else Attention(shape))

    @property
    def mixer(self) -> Mixer:
        """The part that is called as Hugging Face calls it."""
        return cast(Mixer, getattr(self, self.name))

    def forward(self, x: Tensor, span: Span) -> Tensor:
        """Return the residual stream [batch, rows, width] of whole sequences."""
        x = x + self.mixer(self.input_layernorm(x), span)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out

    def step(self, x: Tensor, span: Span, cache: Cache) -> Tensor:
        """Return the stream after rows that follow those in the cache."""
        x = x + self.mixer.step(self.input_layernorm(x), span, cache)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
