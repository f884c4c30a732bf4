"""Model shapes read from config.json: a strict reader that refuses every key it does not understand.

A key that changes the arithmetic and is not implemented must not be ignored: the model would still run, and be wrong.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.model.errors import ModelError
from services.common.model.fields import Fields

CONFIG_FILE = "config.json"

_IGNORED = frozenset({
    "_name_or_path", "architectures", "auto_map", "bos_token_id", "dtype", "initializer_range", "max_window_layers",
    "model_type", "num_target_layers", "pad_token_id", "sliding_window", "torch_dtype", "transformers_version",
    "use_cache", "sep_token_id", "decoder_start_token_id", "name_or_path",
})  # fmt: skip
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "attention_dropout": (0, 0.0, None),
    "hidden_act": ("silu",),
    "is_causal": (False, None),
    "layer_types": (),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1, 1.0, None),
    "rope_scaling": (None,),
    "use_sliding_window": (False, None),
}
_NEUTRAL_DFLASH: Mapping[str, tuple[Any, ...]] = {
    "attention_sink_bias": (False, None),
    "attention_value_scale": (None, 1, 1.0),
    "causal": (False, None),
    "conv_kernel_size": (None, 0),
    "final_logit_softcapping": (None, 0, 0.0),
    "input_embedding_scale": (None, 1, 1.0),
    "output_multiplier": (None, 1, 1.0),
    "projector_type": (None, "linear"),
    "sample_from_anchor": (False, None),
    "selector_rank": (None, 0),
    "swa_window_size": (None,),
    "use_aux_hidden_state": (True, None),
    "use_swa": (False, None),
}


@dataclass(frozen=True)
class BackboneConfig:
    """The sizes of a stack of Qwen3 blocks."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float


@dataclass(frozen=True)
class TargetConfig(BackboneConfig):
    """A Qwen3 for causal language modelling."""

    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class DrafterConfig(BackboneConfig):
    """A DFlash drafter; `target_layer_ids` are the target blocks whose outputs it reads."""

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int


def read_target_config(folder: Path) -> TargetConfig:
    """Read a target's config.json.

    Raises:
        ModelError: the file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    fields = _open(folder, {"Qwen3ForCausalLM"})
    backbone = _backbone(fields)
    eos = fields.take("eos_token_id", (int, list, type(None)), default=None)
    ids = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
    tied = fields.take("tie_word_embeddings", (bool,), default=False)
    fields.finish(_IGNORED - {"num_target_layers"})
    return TargetConfig(**backbone, tie_word_embeddings=tied, eos_token_ids=_token_ids(fields, "eos_token_id", ids))


def read_drafter_config(folder: Path) -> DrafterConfig:
    """Read a DFlash drafter's config.json in the published layout (`dflash_config` holds the mask id and the layers).

    Raises:
        ModelError: the file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    fields = _open(folder, {"DFlashDraftModel"})
    backbone = _backbone(fields)
    inner = Fields(fields.source, fields.take("dflash_config", (dict,), default={}), prefix="dflash_config.")
    for name, allowed in _NEUTRAL_DFLASH.items():
        inner.neutral(name, allowed)
    own = fields.take("block_size", (int, type(None)), default=None)
    block_size = own if own is not None else inner.positive("block_size")
    if inner.take("block_size", (int,), default=block_size) != block_size:
        raise fields.error("block_size", "differs from dflash_config.block_size")
    if block_size < 2:
        raise fields.error("block_size", f"must be at least 2, is {block_size}")
    num_target_layers = fields.positive("num_target_layers")
    default = default_layer_ids(num_target_layers, backbone["num_hidden_layers"])
    layer_ids = tuple(inner.take("target_layer_ids", (list,), default=list(default)))
    if not layer_ids or any(type(i) is not int or not 0 <= i < num_target_layers for i in layer_ids):
        raise fields.error("dflash_config.target_layer_ids", f"must be ids below {num_target_layers}: {layer_ids}")
    (mask_id,) = _token_ids(fields, "dflash_config.mask_token_id", (inner.take("mask_token_id", (int,)),))
    if fields.take("draft_vocab_size", (int, type(None)), default=None) not in (None, backbone["vocab_size"]):
        raise fields.error("draft_vocab_size", "a reduced draft vocabulary is not supported")
    fields.take("tie_word_embeddings", (bool,), default=False)
    fields.take("eos_token_id", (int, list, type(None)), default=None)
    fields.finish(_IGNORED)
    inner.finish(frozenset())
    return DrafterConfig(**backbone, block_size=block_size, mask_token_id=mask_id, target_layer_ids=layer_ids,
                         num_target_layers=num_target_layers)  # fmt: skip


def default_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """Return the layers that DFlash reads when a checkpoint names none: evenly spread from 1 to L - 3."""
    if draft_layers == 1 or target_layers < 4:
        return (target_layers // 2,)
    step = (target_layers - 4) / (draft_layers - 1)
    return tuple(round(1 + index * step) for index in range(draft_layers))


def _open(folder: Path, architectures: set[str]) -> Fields:
    path = folder / CONFIG_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path}: is not a JSON object")
    fields = Fields(path, values)
    named = fields.take("architectures", (list,))
    if not set(named) & architectures:
        raise fields.error("architectures", f"{named} is not supported, only {sorted(architectures)}")
    return fields


def _backbone(fields: Fields) -> dict[str, Any]:
    layers, heads = fields.positive("num_hidden_layers"), fields.positive("num_attention_heads")
    kv_heads = fields.positive("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    hidden = fields.positive("hidden_size")
    head_dim = fields.positive("head_dim", default=hidden // heads)
    if head_dim % 2:
        raise fields.error("head_dim", f"must be even for rotary embeddings, is {head_dim}")
    kinds = fields.take("layer_types", (list, type(None)), default=None)
    if kinds is not None and kinds != ["full_attention"] * layers:
        raise fields.error("layer_types", f"only {layers} x full_attention is supported, is {kinds}")
    theta = _rope_theta(fields)
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    return {
        "vocab_size": fields.positive("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": fields.positive("intermediate_size"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": fields.positive("max_position_embeddings"),
        "rms_norm_eps": fields.number("rms_norm_eps", default=1e-6),
        "rope_theta": theta,
    }


def _rope_theta(fields: Fields) -> float:
    nested = fields.take("rope_parameters", (dict, type(None)), default=None)
    if nested is None:
        return fields.number("rope_theta", default=10000.0)
    inner = Fields(fields.source, nested, prefix="rope_parameters.")
    inner.neutral("rope_type", ("default", None))
    inner.neutral("partial_rotary_factor", (1, 1.0, None))
    theta = inner.number("rope_theta", default=10000.0)
    inner.finish(frozenset())
    if fields.number("rope_theta", default=theta) != theta:
        raise fields.error("rope_theta", "differs from rope_parameters.rope_theta")
    return theta


def _token_ids(fields: Fields, name: str, ids: tuple[Any, ...]) -> tuple[int, ...]:
    vocab = fields.positive("vocab_size")
    if any(type(token) is not int or not 0 <= token < vocab for token in ids):
        raise fields.error(name, f"{ids} are not token ids below vocab_size {vocab}")
    return ids
