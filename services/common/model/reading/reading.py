"""Reads the part of config.json that families share, and refuses every key that no code understands.

A key that changes the arithmetic and is not implemented must not be ignored: the model would run with wrong results.
"""

import logging
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from services.common.model.fields.fields import Fields, read_object
from services.common.model.fields.generation import eos_token_ids, read_generation
from services.common.model.fields.known_keys import IGNORED, NEUTRAL
from services.common.model.files.checkpoint import CONFIG_FILE
from services.common.model.files.weight_formats import read_format
from services.common.model.reading.rope import read_rope
from services.common.model.spec import Attention, Dense, Experts, LayerSpec, ModelSpec, StackSpec

_LOG = logging.getLogger(__name__)
FfnReader = Callable[[Fields, int], Sequence[Dense | Experts]]
"""Returns the feed-forward parts of so many layers."""
FULL, SLIDING = "full_attention", "sliding_attention"
"""Of `layer_types`."""
_LONGEST_NAME = 64
"""Of an architecture, as a message shows it."""
MOST_LAYERS = 1 << 12
"""More would take a minute and gigabytes only to be compared with the file's tensors."""


def open_config(
    folder: Path, architectures: Iterable[str], others: Mapping[str, str] = MappingProxyType({}), remedy: str = ""
) -> tuple[str, Fields]:
    """Return which of `architectures` a folder's config.json names, and its keys; `others` are why some are refused.

    `remedy` says what to take instead of one that is unknown.

    Raises:
        ModelError: the file is missing or malformed, or names none of them.
    """
    path = folder / CONFIG_FILE
    fields = Fields(path, read_object(path))
    named, known = fields.take("architectures", (list,)), sorted(architectures)
    for name in named:
        if name in known:
            return str(name), fields
        if isinstance(name, str) and name in others:
            raise fields.error("architectures", f"{name}: {others[name]}")
    shown = [str(name)[:_LONGEST_NAME] for name in named[:4]]
    raise fields.error("architectures", f"{shown} is not supported, only {known}{remedy}")


def read_dense(fields: Fields, count: int) -> tuple[Dense, ...]:
    """Return the feed-forward parts of so many layers, which are equal.

    Raises:
        ModelError: the size is missing or malformed.
    """
    return (Dense(fields.positive("intermediate_size")),) * count


def read_stack(
    fields: Fields, *, bias: bool, qk_norm: bool, kinds: Sequence[str] = (FULL,), ffns: FfnReader = read_dense
) -> StackSpec:
    """Read a stack of blocks with equal mixers: attention over all tokens before, with or without bias and head norms.

    `kinds` are the `layer_types` that the caller knows, `ffns` reads the feed-forward part of each layer.

    Raises:
        ModelError: a size is missing or inconsistent, or a key asks for what is not implemented.
    """
    count = fields.positive("num_hidden_layers", most=MOST_LAYERS)
    given = fields.take("layer_types", (list, type(None)), default=None)
    if given is not None and (len(given) != count or any(kind not in kinds for kind in given)):
        raise fields.error("layer_types", f"only {count} x {list(kinds)} is supported, is {reprlib.repr(given)}")
    hidden = fields.positive("hidden_size")
    attention, positions = read_attention(fields, hidden, bias=bias, qk_norm=qk_norm)
    refuse_known(fields)
    return StackSpec(
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden,
        layers=tuple(LayerSpec(attention, ffn) for ffn in ffns(fields, count)),
        max_positions=positions,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
    )


def read_causal(fields: Fields, folder: Path, stack: StackSpec, tied: bool = False, capped: bool = False) -> ModelSpec:
    """Read the keys that make a stack a causal language model, and refuse all keys that were not read.

    generation_config.json adds tokens that end a text, and recommended sampling. `tied` is the default of the key, and
    `capped` says whether logits may have a bound.

    Raises:
        ModelError: a value is malformed, or a key is not understood.
    """
    generation = read_generation(folder, stack.vocab_size)
    own = eos_token_ids(fields, stack.vocab_size)
    tied = fields.take("tie_word_embeddings", (bool,), default=tied)
    cap = fields.optional_number("final_logit_softcapping") if capped else None
    finish(fields, IGNORED - {"num_target_layers"})
    return ModelSpec(
        **vars(stack),
        tied=tied,
        eos_token_ids=tuple(dict.fromkeys(own + generation.eos_token_ids)),
        recommended_sampling=generation.sampling,
        logit_cap=cap or 0.0,
    )


def read_text_of(
    fields: Fields, folder: Path, read: Callable[[Fields], StackSpec], beside: Set[str], *, tied: bool = False,
    capped: bool = False, usual: Mapping[str, Any] = MappingProxyType({}),
) -> ModelSpec:  # fmt: skip
    """Read a configuration whose `text_config` describes the model, with what such files leave out.

    `beside` are the keys of what is not served, images for instance; `tied` and `capped` are as `read_causal`'s.

    Raises:
        ModelError: `text_config` is missing, as `read` says, or a key beside it is not understood.
    """
    text = fields.nested("text_config")
    if not text:
        raise fields.error("text_config", "is missing")
    refuse_known(fields)
    tied = fields.take("tie_word_embeddings", (bool,), default=tied)
    text = text.filled(usual)
    stack = read(text)
    ends = eos_token_ids(fields, stack.vocab_size)
    finish(fields, IGNORED | beside)
    spec = read_causal(text, folder, stack, tied, capped)
    return replace(spec, eos_token_ids=tuple(dict.fromkeys(ends + spec.eos_token_ids)))


def refuse_known(fields: Fields) -> None:
    """Refuse values of known keys that ask for what is not implemented, weights that are packed otherwise among them.

    Raises:
        ModelError: there is one.
    """
    read_format(fields)
    for name, allowed in NEUTRAL.items():
        fields.neutral(name, allowed)


def finish(fields: Fields, ignored: Set[str]) -> None:
    """Refuse what is not understood, and tell once what has no effect.

    Raises:
        ModelError: a key was neither read nor is known to be harmless.
    """
    unused = fields.finish(ignored)
    if unused:
        _LOG.info("%s: these keys have no effect: %s", fields.source, ", ".join(unused))


def read_attention(
    fields: Fields, hidden: int, *, bias: bool, qk_norm: bool, gated: bool = False, turning: float | None = None
) -> tuple[Attention, int]:
    """Return the attention of every layer that has one, and how many positions the model is meant for.

    `turning` is the usual share of a head that turns, for families in which it may be a part.

    Raises:
        ModelError: a size is missing or inconsistent, or the rotary embedding is not implemented.
    """
    heads = fields.positive("num_attention_heads")
    kv_heads = fields.positive("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    head_dim = fields.positive("head_dim", default=hidden // heads)
    if head_dim % 2:
        raise fields.error("head_dim", f"must be even for rotary embeddings, is {head_dim}")
    rope, positions = read_rope(fields, head_dim, turning)
    own = Attention(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope=rope, bias=bias, qk_norm=qk_norm, gated=gated
    )
    return own, positions
