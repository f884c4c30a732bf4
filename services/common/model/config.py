"""Model shapes read from config.json: a strict reader that refuses every key it does not understand.

A key that changes the arithmetic and is not implemented must not be ignored: the model would still run, and be wrong.
"""

import logging
import reprlib
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.kernels.rope import Scaling
from services.common.model.checkpoint import CONFIG_FILE
from services.common.model.fields import Fields, read_object
from services.common.model.generation import eos_token_ids, read_generation, token_ids
from services.common.model.known_keys import IGNORED, NEUTRAL, NEUTRAL_DFLASH
from services.common.model.rope import read_rope

_LOG = logging.getLogger(__name__)
_MOST_LAYERS, _MOST_BLOCK = 1 << 12, 1 << 10
"""What would take a minute and gigabytes only to be compared with the file's tensors."""


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """The sizes of a stack of Qwen3 blocks; `max_position_embeddings` is the length that scaling allows."""

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
    rope_scaling: Scaling | None = None


@dataclass(frozen=True, kw_only=True)
class TargetConfig(BackboneConfig):
    """A Qwen3 for causal language modelling; `recommended_sampling` are what its makers recommend, by request field."""

    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    recommended_sampling: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class DrafterConfig(BackboneConfig):
    """A DFlash drafter; `target_layer_ids` are the target blocks whose outputs it reads."""

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int


def read_target_config(folder: Path) -> TargetConfig:
    """Read a target's config.json, and of its generation_config.json what ends a text and how to sample.

    Raises:
        ModelError: a file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    fields = _open(folder, {"Qwen3ForCausalLM"})
    backbone = _backbone(fields)
    generation = read_generation(folder, backbone["vocab_size"])
    own = eos_token_ids(fields, backbone["vocab_size"])
    tied = fields.take("tie_word_embeddings", (bool,), default=False)
    _finish(fields, IGNORED - {"num_target_layers"})
    return TargetConfig(
        **backbone,
        tie_word_embeddings=tied,
        eos_token_ids=tuple(dict.fromkeys(own + generation.eos_token_ids)),
        recommended_sampling=generation.sampling,
    )


def read_drafter_config(folder: Path) -> DrafterConfig:
    """Read a DFlash drafter's config.json in the published layout (`dflash_config` holds the mask id and the layers).

    Raises:
        ModelError: the file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    fields = _open(folder, {"DFlashDraftModel"})
    backbone = _backbone(fields)
    inner = fields.nested("dflash_config")
    for name, allowed in NEUTRAL_DFLASH.items():
        inner.neutral(name, allowed)
    block_size = _block_size(fields, inner)
    num_target_layers = fields.positive("num_target_layers", most=_MOST_LAYERS)
    default = default_layer_ids(num_target_layers, backbone["num_hidden_layers"])
    layer_ids = tuple(inner.take("target_layer_ids", (list,), default=list(default)))
    if not layer_ids or any(type(i) is not int or not 0 <= i < num_target_layers for i in layer_ids):
        raise inner.error("target_layer_ids", f"must be ids below {num_target_layers}: {reprlib.repr(layer_ids)}")
    (mask_id,) = token_ids(inner, "mask_token_id", [inner.take("mask_token_id", (int,))], backbone["vocab_size"])
    if fields.take("draft_vocab_size", (int, type(None)), default=None) not in (None, backbone["vocab_size"]):
        raise fields.error("draft_vocab_size", "a reduced draft vocabulary is not supported")
    fields.take("tie_word_embeddings", (bool,), default=False)
    fields.take("eos_token_id", (int, list, type(None)), default=None)
    inner.finish(frozenset())
    _finish(fields, IGNORED)
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
    fields = Fields(path, read_object(path))
    named = fields.take("architectures", (list,))
    if not any(isinstance(name, str) and name in architectures for name in named):
        raise fields.error("architectures", f"{reprlib.repr(named)} is not supported, only {sorted(architectures)}")
    return fields


def _finish(fields: Fields, ignored: Set[str]) -> None:
    """Refuse what is not understood, and tell once what has no effect."""
    unused = fields.finish(ignored)
    if unused:
        _LOG.info("%s: these keys have no effect: %s", fields.source, ", ".join(unused))


def _backbone(fields: Fields) -> dict[str, Any]:
    layers = fields.positive("num_hidden_layers", most=_MOST_LAYERS)
    heads = fields.positive("num_attention_heads")
    kv_heads = fields.positive("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    hidden = fields.positive("hidden_size")
    head_dim = fields.positive("head_dim", default=hidden // heads)
    if head_dim % 2:
        raise fields.error("head_dim", f"must be even for rotary embeddings, is {head_dim}")
    kinds = fields.take("layer_types", (list, type(None)), default=None)
    if kinds is not None and kinds != ["full_attention"] * layers:
        raise fields.error("layer_types", f"only {layers} x full_attention is supported, is {reprlib.repr(kinds)}")
    rope = read_rope(fields)
    for name, allowed in NEUTRAL.items():
        fields.neutral(name, allowed)
    return {
        "vocab_size": fields.positive("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": fields.positive("intermediate_size"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": rope.positions,
        "rms_norm_eps": fields.number("rms_norm_eps", default=1e-6),
        "rope_theta": rope.theta,
        "rope_scaling": rope.scaling,
    }


def _block_size(fields: Fields, inner: Fields) -> int:
    """Return the block's size, which stands beside `dflash_config` or, in newer files, in it."""
    own, other = (where.take("block_size", (int, type(None)), default=None) for where in (fields, inner))
    if own is not None and other is not None and own != other:
        raise fields.error("block_size", "differs from dflash_config.block_size")
    size: int = (fields if own is not None else inner).positive("block_size", most=_MOST_BLOCK)
    if size < 2:
        raise fields.error("block_size", f"must be at least 2, is {size}")
    return size
