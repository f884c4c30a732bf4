"""Reads what hybrid families share of config.json: layers of Gated DeltaNet, and some of gated attention."""

import reprlib

from services.common.model.fields import Fields
from services.common.model.reading import MOST_LAYERS, read_attention, refuse_known
from services.common.model.spec import Attention, Delta, Dense, LayerSpec, StackSpec

_KINDS = {"linear_attention": Delta, "full_attention": Attention}
_NEUTRAL = {
    "attn_output_gate": (True, None),
    "mlp_only_layers": ([], None),
    "mamba_ssm_dtype": ("float32", None),
    "output_gate_type": ("silu", "swish", None),
}
_SHARE, _INTERVAL = 0.25, 4
"""Of a head that turns, and of which layers have attention, where a file does not say."""


def read_hybrid(fields: Fields) -> StackSpec:
    """Read a stack of recurrent and attention layers, each with SwiGLU; norms are centred on zero.

    Raises:
        ModelError: a size is missing or inconsistent, or a key asks for what is not implemented.
    """
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    hidden = fields.positive("hidden_size")
    attention, positions = read_attention(fields, hidden, bias=False, qk_norm=True, gated=True, turning=_SHARE)
    mixers: dict[type, Attention | Delta] = {Attention: attention, Delta: _delta(fields)}
    refuse_known(fields)
    dense = Dense(fields.positive("intermediate_size"))
    return StackSpec(
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden,
        layers=tuple(LayerSpec(mixers[kind], dense) for kind in _kinds(fields)),
        max_positions=positions,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
        norm_offset=1.0,
    )


def _kinds(fields: Fields) -> list[type[Attention | Delta]]:
    """Return the kind of each layer; without a list every `full_attention_interval`th has attention."""
    count = fields.positive("num_hidden_layers", most=MOST_LAYERS)
    interval = fields.positive("full_attention_interval", default=_INTERVAL)
    names = fields.take("layer_types", (list, type(None)), default=None)
    if names is None:
        names = ["linear_attention" if (index + 1) % interval else "full_attention" for index in range(count)]
    if len(names) != count or any(not isinstance(name, str) or name not in _KINDS for name in names):
        raise fields.error("layer_types", f"must be {count} of {sorted(_KINDS)}, is {reprlib.repr(names)}")
    if "full_attention" not in names:
        raise fields.error("layer_types", "a model without full_attention is not supported")
    return [_KINDS[name] for name in names]


def _delta(fields: Fields) -> Delta:
    k_heads, v_heads = fields.positive("linear_num_key_heads"), fields.positive("linear_num_value_heads")
    if v_heads % k_heads:
        raise fields.error("linear_num_key_heads", f"{k_heads} does not divide linear_num_value_heads {v_heads}")
    return Delta(
        k_heads=k_heads,
        v_heads=v_heads,
        k_dim=fields.positive("linear_key_head_dim"),
        v_dim=fields.positive("linear_value_head_dim"),
        taps=fields.positive("linear_conv_kernel_dim", most=16),
    )
