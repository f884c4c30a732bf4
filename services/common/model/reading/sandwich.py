"""Reads blocks whose results are normalised before they are added, most of them with sliding windows."""

from collections.abc import Mapping

from services.common.model.fields.fields import Fields
from services.common.model.reading.reading import FULL, SLIDING, refuse_known
from services.common.model.reading.rope import read_positions, read_rope_part
from services.common.model.reading.sliding import read_kinds, read_ropes, read_window
from services.common.model.spec import Attention, Dense, LayerSpec, Rope, StackSpec

_EVERY = 6
"""Which layers have no window, where a file does not say."""
_LOCAL_THETA, _GLOBAL_THETA = 1e4, 1e6
"""Of sliding layers and of others, where a file does not say."""
_NEUTRAL = {
    "attn_logit_softcapping": (None,),
    "cache_implementation": ("hybrid", None),
    "final_logit_softcapping": (None,),
    "hidden_activation": ("gelu_pytorch_tanh", None),
    "use_bidirectional_attention": (False, None),
}


def read_sandwich(fields: Fields) -> StackSpec:
    """Read a dense stack with norms around both parts of a block, centred on zero, and scaled embeddings.

    Raises:
        ModelError: a size is missing or inconsistent, or a key asks for what is not implemented.
    """
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    hidden, heads = fields.positive("hidden_size"), fields.positive("num_attention_heads")
    kv_heads, head_dim = fields.positive("num_key_value_heads"), fields.positive("head_dim")
    if heads % kv_heads or head_dim % 2:
        raise fields.error("num_key_value_heads", f"{kv_heads} of {head_dim} do not fit num_attention_heads {heads}")
    positions, kinds = read_positions(fields), read_kinds(fields, _EVERY)
    ropes, windows = _ropes(fields, positions, head_dim), {FULL: 0, SLIDING: read_window(fields)}
    scale = fields.number("query_pre_attn_scalar") ** -0.5
    attention = {
        kind: Attention(
            heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope=ropes[kind], window=windows[kind], scale=scale
        )
        for kind in (FULL, SLIDING)
    }
    refuse_known(fields)
    ffn = Dense(fields.positive("intermediate_size"), gelu=True)
    return StackSpec(
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden,
        layers=tuple(LayerSpec(attention[kind], ffn, sandwich=True) for kind in kinds),
        max_positions=positions,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
        norm_offset=1.0,
        embed_scale=hidden**0.5,
    )


def _ropes(fields: Fields, positions: int, head_dim: int) -> Mapping[str, Rope]:
    """Return the rotary table of each kind of layer: of one object for each, or of the older keys."""
    thetas = {
        FULL: fields.number("rope_theta", default=_GLOBAL_THETA),
        SLIDING: fields.number("rope_local_base_freq", default=_LOCAL_THETA),
    }
    older, newer = fields.nested("rope_scaling"), fields.nested("rope_parameters")
    if older and newer:
        raise fields.error("rope_scaling", "stands beside rope_parameters")
    if newer:
        return read_ropes(fields, positions, dict.fromkeys(thetas, head_dim), thetas)
    parts = {FULL: older, SLIDING: Fields(fields.source, {})}
    return {kind: read_rope_part(part, positions, head_dim, thetas[kind]) for kind, part in parts.items()}
