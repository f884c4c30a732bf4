"""Reads blocks with norms around their parts, whose layers with a window have other heads than those without one.

The latter have fewer and larger heads of keys, which serve as values too.
"""

from services.common.model.fields.fields import Fields
from services.common.model.reading.reading import FULL, SLIDING, refuse_known
from services.common.model.reading.rope import read_positions
from services.common.model.reading.sliding import read_kinds, read_ropes, read_window
from services.common.model.spec import Attention, Beside, Dense, Experts, LayerSpec, Rope, StackSpec

_EVERY, _GLOBAL_HEAD = 6, 512
"""Which layers have no window, and the size of their heads, where a file does not say."""
_NEUTRAL = {
    "hidden_activation": ("gelu_pytorch_tanh", None),
    "num_kv_shared_layers": (0, None),
    "use_bidirectional_attention": (None, "vision"),
    "use_double_wide_mlp": (False, None),
}
_ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
"""Where a file does not say."""


def read_two_sizes(fields: Fields) -> StackSpec:
    """Read such a stack, dense or with experts beside each dense part.

    Raises:
        ModelError: a size is missing or inconsistent, or a key asks for what is not implemented.
    """
    _refuse(fields)
    positions, kinds, hidden = read_positions(fields), read_kinds(fields, _EVERY), fields.positive("hidden_size")
    if kinds[-1] != FULL:
        raise fields.error("layer_types", f"the last layer must be {FULL}")
    head_dims = {
        SLIDING: fields.positive("head_dim"),
        FULL: fields.positive("global_head_dim", default=_GLOBAL_HEAD),
    }
    if any(size % 2 for size in head_dims.values()):
        raise fields.error("head_dim", f"must be even for rotary embeddings, is one of {sorted(head_dims.values())}")
    ropes = read_ropes(fields.filled({"rope_parameters": _ROPES}), positions, head_dims)
    fields.take("rope_parameters", (dict,), default=None)
    attention = {kind: _attention(fields, kind, head_dims[kind], ropes[kind]) for kind in (FULL, SLIDING)}
    refuse_known(fields)
    ffn = _ffn(fields)
    return StackSpec(
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden,
        layers=tuple(LayerSpec(attention[kind], ffn, sandwich=True, scaled=True) for kind in kinds),
        max_positions=positions,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
        embed_scale=hidden**0.5,
    )


def _refuse(fields: Fields) -> None:
    if fields.take("hidden_size_per_layer_input", (int, type(None)), default=256):
        raise fields.error("hidden_size_per_layer_input", "embeddings of each layer (E2B, E4B) are not supported")
    fields.take("vocab_size_per_layer_input", (int, type(None)), default=None)
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)


def _attention(fields: Fields, kind: str, head_dim: int, rope: Rope) -> Attention:
    heads, kv_heads = fields.positive("num_attention_heads"), fields.positive("num_key_value_heads")
    others = fields.positive("num_global_key_value_heads", default=kv_heads)
    k_as_v = kind == FULL and fields.take("attention_k_eq_v", (bool,), default=False)
    kv_heads = others if k_as_v else kv_heads
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    return Attention(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope=rope, scale=1.0, v_norm=True, k_as_v=k_as_v,
        window=read_window(fields) if kind == SLIDING else 0,
    )  # fmt: skip


def _ffn(fields: Fields) -> Dense | Beside:
    dense, names = Dense(fields.positive("intermediate_size"), gelu=True), ("num_experts", "top_k_experts")
    if not fields.take("enable_moe_block", (bool, type(None)), default=False):
        for name in (*names, "moe_intermediate_size"):
            fields.take(name, (int, type(None)), default=None)
        return dense
    count, top_k = (fields.positive(name) for name in names)
    if top_k > count:
        raise fields.error("top_k_experts", f"must be at most num_experts {count}, is {top_k}")
    inner = fields.positive("moe_intermediate_size")
    return Beside(dense, Experts(count=count, top_k=top_k, inner=inner, scaled=True, gelu=True))
