"""A model described by frozen records. A family's file makes them of a configuration; other code reads only them.

A new kind of mixer or feed-forward part gets its own record here and joins the union of its field.
"""

from dataclasses import dataclass

from services.common.kernels.rope import Scaling
from services.common.model.fields.errors import ModelError


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of a head's first `turning` dimensions, all without it.

    `scaling` is how its frequencies are stretched, None for not at all.
    """

    theta: float
    scaling: Scaling | None = None
    turning: int | None = None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention over all tokens before, with grouped heads.

    `bias` is one on queries, keys and values; with `qk_norm` each head of queries and keys is normalised. When `gated`,
    the mixed rows are multiplied by the sigmoid of a product of their own. With a `window` rows see so many of the last
    tokens, their own included; 0: all. Scores are multiplied by `scale`, by `head_dim ** -0.5` without one.

    With `head_gates` each head of the mixed rows is multiplied by the softplus of a product of its own. With `k_as_v`
    values are the keys before their norm and rotation; with `v_norm` heads of values are normalised, without a weight.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope
    bias: bool = False
    qk_norm: bool = True
    gated: bool = False
    window: int = 0
    scale: float | None = None
    head_gates: bool = False
    k_as_v: bool = False
    v_norm: bool = False


@dataclass(frozen=True, kw_only=True)
class Delta:
    """Gated DeltaNet (arXiv:2412.06464): a state of `k_dim` by `v_dim` for each value head in place of K/V.

    Queries, keys and values pass a causal convolution of `taps` rows; a head of keys serves a group of value heads.
    """

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    taps: int = 4

    @property
    def channels(self) -> int:
        """Columns that the convolution sees: queries, keys and values."""
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim

    @property
    def kept(self) -> int:
        """Columns of a row that its sequence keeps: those, and two gates for each value head."""
        return self.channels + 2 * self.v_heads


@dataclass(frozen=True)
class Dense:
    """SwiGLU with `inner` columns between its products; GeGLU, by tanh's approximation, with `gelu`."""

    inner: int
    gelu: bool = False


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of `count` SwiGLUs with `inner` columns each, of which a row takes those `top_k` that a router prefers.

    Their results are weighted by the router's softmax over all; with `renorm` the weights of those taken add up to 1.
    With `sigmoid` they are weighted by the sigmoids of the router, and chosen by these with a bias of each expert; a
    router's numbers are bounded by `cap`, by tanh, 0: not. Weights are then multiplied by `factor`, and by a number of
    each expert where they are `scaled`. `shared` are the columns of one more that every row takes, 0: none; where it is
    `shared_gated`, times the sigmoid of a product of its own. `gelu` is as `Dense`'s.

    The device holds `resident` of the experts, 0: all; it reads the others in host memory.
    """

    count: int
    top_k: int
    inner: int
    renorm: bool = True
    sigmoid: bool = False
    cap: float = 0.0
    factor: float = 1.0
    scaled: bool = False
    shared: int = 0
    shared_gated: bool = True
    gelu: bool = False
    resident: int = 0


@dataclass(frozen=True)
class Beside:
    """A dense part beside a mixture of experts that takes the stream itself, normalised for it; results have norms."""

    dense: Dense
    experts: Experts


@dataclass(frozen=True)
class LayerSpec:
    """One block: a mixer, then a feed-forward part, each with a norm before it and added to the residual stream.

    With `sandwich` the results of both are normalised before they are added. Where it is `scaled`, the stream after the
    block is multiplied by a number of its own.
    """

    mixer: Attention | Delta
    ffn: Dense | Experts | Beside
    sandwich: bool = False
    scaled: bool = False


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
    def groups(self) -> tuple[Attention, ...]:
        """The records of attention in the order of their first layers: each has K/V, a rotary table and a mask.

        Raises:
            ModelError: no layer has attention.
        """
        kinds = dict.fromkeys(layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention))
        if not kinds:
            raise ModelError("a model without a layer of attention is not supported")
        return tuple(kinds)

    @property
    def attention(self) -> Attention:
        """The record that all layers of attention share: K/V of one shape, and one rotary table.

        Raises:
            ModelError: layers differ, or none has attention.
        """
        kinds = self.groups
        if len(kinds) > 1:
            raise ModelError(f"layers of different attention are not supported: {kinds[0]} and {kinds[1]}")
        return kinds[0]

    @property
    def delta(self) -> Delta | None:
        """The record that all recurrent layers share; None without one.

        Raises:
            ModelError: layers differ.
        """
        kinds = list(dict.fromkeys(layer.mixer for layer in self.layers if isinstance(layer.mixer, Delta)))
        if len(kinds) > 1:
            raise ModelError(f"recurrent layers of different shapes are not supported: {kinds[0]} and {kinds[1]}")
        return kinds[0] if kinds else None

    @property
    def routes(self) -> bool:
        """Whether what a row reads of the weights follows from the row: some layer has experts."""
        return any(isinstance(layer.ffn, Experts | Beside) for layer in self.layers)

    def count(self, kind: type[Attention | Delta]) -> int:
        """How many layers mix rows by `kind`."""
        return sum(isinstance(layer.mixer, kind) for layer in self.layers)


@dataclass(frozen=True, kw_only=True)
class ModelSpec(StackSpec):
    """A model for causal language modelling; `recommended_sampling` are what its makers recommend, by request field.

    Its logits are bounded by `logit_cap`, by tanh; 0: not.
    """

    tied: bool
    eos_token_ids: tuple[int, ...]
    logit_cap: float = 0.0
    recommended_sampling: tuple[tuple[str, float], ...] = ()
