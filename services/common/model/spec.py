"""A model described by frozen records. A family's file makes them of a configuration; other code reads only them.

A new kind of mixer or feed-forward part gets its own record here and joins the union of its field.
"""

from dataclasses import dataclass

from services.common.kernels.rope import Scaling
from services.common.model.errors import ModelError


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of whole heads; `scaling` is how its frequencies are stretched, None for not at all."""

    theta: float
    scaling: Scaling | None = None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention over all tokens before, with grouped heads.

    `bias` is one on queries, keys and values; with `qk_norm` each head of queries and keys is normalised.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope
    bias: bool = False
    qk_norm: bool = True


@dataclass(frozen=True)
class Dense:
    """SwiGLU with `inner` columns between its products."""

    inner: int


@dataclass(frozen=True)
class LayerSpec:
    """One block: a mixer, then a feed-forward part, each with a norm before it and added to the residual stream."""

    mixer: Attention
    ffn: Dense


@dataclass(frozen=True, kw_only=True)
class StackSpec:
    """Blocks over one residual stream, and the norm after them; `max_positions` is the length that scaling allows.

    Norms multiply by `norm_offset` plus their weight, embedded rows are multiplied by `embed_scale`.
    """

    vocab_size: int
    hidden_size: int
    layers: tuple[LayerSpec, ...]
    max_positions: int
    norm_eps: float
    norm_offset: float = 0.0
    embed_scale: float = 1.0

    @property
    def attention(self) -> Attention:
        """The record that all layers share: K/V of one shape, and one rotary table.

        Raises:
            ModelError: layers differ.
        """
        first, *others = dict.fromkeys(layer.mixer for layer in self.layers)
        if others:
            raise ModelError(f"layers of different attention are not supported: {first} and {others[0]}")
        return first


@dataclass(frozen=True, kw_only=True)
class ModelSpec(StackSpec):
    """A model for causal language modelling; `recommended_sampling` are what its makers recommend, by request field."""

    tied: bool
    eos_token_ids: tuple[int, ...]
    recommended_sampling: tuple[tuple[str, float], ...] = ()
