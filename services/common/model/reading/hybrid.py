"""Reads what hybrid families share of config.json: layers of Gated DeltaNet, and some of gated attention."""

import reprlib
from functools import partial
from pathlib import Path

from services.common.model.fields.fields import Fields
from services.common.model.reading.reading import (
    MOST_LAYERS,
    FfnReader,
    read_attention,
    read_dense,
    read_text_of,
    refuse_known,
)
from services.common.model.spec import Attention, Delta, LayerSpec, ModelSpec, StackSpec

_KINDS = {"linear_attention": Delta, "full_attention": Attention}
_NEUTRAL = {
    "attn_output_gate": (True, None),
    "mamba_ssm_dtype": ("float32", None),
    "output_gate_type": ("silu", "swish", None),
}
_OF_IMAGES = frozenset({
    "image_token_id", "language_model_only", "video_token_id", "vision_config", "vision_end_token_id",
    "vision_start_token_id",
})  # fmt: skip
_SHARE, _INTERVAL = 0.25, 4
"""Of a head that turns, and of which layers have attention, where a file does not say."""


def read_hybrid(fields: Fields, ffns: FfnReader = read_dense) -> StackSpec:
    """Read a stack of recurrent and attention layers; norms are centred on zero.

    `ffns` reads the feed-forward part of each layer.

    Raises:
        ModelError: a size is missing or inconsistent, or a key asks for what is not implemented.
    """
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    hidden = fields.positive("hidden_size")
    attention, positions = read_attention(fields, hidden, bias=False, qk_norm=True, gated=True, turning=_SHARE)
    mixers: dict[type, Attention | Delta] = {Attention: attention, Delta: _delta(fields)}
    refuse_known(fields)
    kinds = _kinds(fields)
    parts = zip(kinds, ffns(fields, len(kinds)), strict=True)
    fields.neutral("mlp_only_layers", ([], None))
    return StackSpec(
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden,
        layers=tuple(LayerSpec(mixers[kind], ffn) for kind, ffn in parts),
        max_positions=positions,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
        norm_offset=1.0,
    )


def read_text_part(fields: Fields, folder: Path, ffns: FfnReader = read_dense) -> ModelSpec:
    """Read a configuration whose `text_config` describes a hybrid; beside it there is a model of images.

    Raises:
        ModelError: as `read_hybrid`, or a key beside it is not understood.
    """
    return read_text_of(fields, folder, partial(read_hybrid, ffns=ffns), _OF_IMAGES)


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
