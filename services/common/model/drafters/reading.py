"""Reads the part of config.json that drafters in z-lab's layouts share."""

import reprlib
from dataclasses import replace
from types import NoneType

from services.common.kernels.span_attention import Mask
from services.common.model.drafters.spec import DrafterSpec
from services.common.model.fields.fields import Fields
from services.common.model.fields.generation import token_ids
from services.common.model.fields.known_keys import IGNORED
from services.common.model.reading.reading import FULL, MOST_LAYERS, SLIDING, finish, read_stack

_MOST_BLOCK = 1 << 10
_MOST_WINDOW = 1 << 22
_ANCHOR = "sample_from_anchor", (bool, NoneType)
_ANY = (bool, int, float, str, list, dict, NoneType)


def read_block(fields: Fields, inner: Fields) -> DrafterSpec:
    """Read what the kinds of z-lab's layouts share; they differ in what `inner` holds and what stands beside it.

    Raises:
        ModelError: a key is malformed or inconsistent.
    """
    block_size = _block_size(fields, inner)
    masks = _masks(fields, inner, block_size)
    stack = read_stack(fields, bias=False, qk_norm=True, kinds=(FULL, SLIDING))
    num_target_layers = _target_layers(fields, inner)
    draft_vocab = _draft_vocab(fields, stack.vocab_size)
    tied = fields.take("tie_word_embeddings", (bool,), default=False)
    return DrafterSpec(
        **vars(replace(stack, embed_scale=_scale(fields, inner, "input_embedding_scale"))),
        block_size=block_size,
        short_sizes=_short_sizes(inner, block_size),
        mask_token_id=_mask_id(fields, inner, stack.vocab_size),
        target_layer_ids=_layer_ids(fields, inner, num_target_layers, len(stack.layers)),
        num_target_layers=num_target_layers,
        masks=masks,
        logit_scale=_scale(fields, inner, "output_multiplier"),
        logit_cap=_cap(fields, inner),
        anchor_predicts=bool(holder_of(fields, inner, "sample_from_anchor").take(*_ANCHOR, default=None)),
        draft_vocab=draft_vocab,
        tied=tied and not draft_vocab,
    )


def finish_block(fields: Fields, inner: Fields) -> None:
    """Refuse every key that was not read and is not known to be harmless.

    Raises:
        ModelError: there is one.
    """
    fields.take("eos_token_id", (int, list, NoneType), default=None)
    inner.finish(frozenset())
    finish(fields, IGNORED)


def default_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """Return the layers that DFlash reads when a checkpoint names none: evenly spread from 1 to L - 3."""
    if draft_layers == 1 or target_layers < 4:
        return (target_layers // 2,)
    step = (target_layers - 4) / (draft_layers - 1)
    return tuple(round(1 + index * step) for index in range(draft_layers))


def holder_of(fields: Fields, inner: Fields, name: str) -> Fields:
    """Return where a key stands: in `dflash_config`, or beside it.

    Raises:
        ModelError: in both, with values that differ.
    """
    own, other = (where.take(name, _ANY, default=None) for where in (fields, inner))
    if own is not None and other is not None and own != other:
        raise fields.error(name, f"differs from {inner.prefix}{name}")
    return inner if own is None else fields


def _block_size(fields: Fields, inner: Fields) -> int:
    holder = holder_of(fields, inner, "block_size")
    size = holder.positive("block_size", most=_MOST_BLOCK)
    if size < 2:
        raise holder.error("block_size", f"must be at least 2, is {size}")
    return size


def _short_sizes(inner: Fields, block_size: int) -> tuple[int, ...]:
    """Return further sizes of trained blocks; the key is that of paceline's own training."""
    sizes = inner.take("short_block_sizes", (list,), default=[])
    if any(type(size) is not int or not 2 <= size < block_size for size in sizes):
        raise inner.error("short_block_sizes", f"must be sizes from 2 on below {block_size}: {reprlib.repr(sizes)}")
    return tuple(sorted(set(sizes)))


def _mask_id(fields: Fields, inner: Fields, vocab: int) -> int:
    holder = holder_of(fields, inner, "mask_token_id")
    (mask_id,) = token_ids(holder, "mask_token_id", [holder.take("mask_token_id", (int,))], vocab)
    return mask_id


def _layer_ids(fields: Fields, inner: Fields, target_layers: int, draft_layers: int) -> tuple[int, ...]:
    holder = holder_of(fields, inner, "target_layer_ids")
    default = list(default_layer_ids(target_layers, draft_layers)) if target_layers else None
    layer_ids = tuple(holder.take("target_layer_ids", (list,), **({"default": default} if default else {})))
    most = target_layers or MOST_LAYERS
    if not layer_ids or any(type(i) is not int or not 0 <= i < most for i in layer_ids):
        raise holder.error("target_layer_ids", f"must be ids below {most}: {reprlib.repr(layer_ids)}")
    return layer_ids


def _target_layers(fields: Fields, inner: Fields) -> int:
    """Return how many layers the target has; files that name the layers they read need not say."""
    holder, named = (holder_of(fields, inner, name) for name in ("num_target_layers", "target_layer_ids"))
    if holder.take("num_target_layers", _ANY, default=None) is None and named.take("target_layer_ids", _ANY, None):
        return 0
    return holder.positive("num_target_layers", most=MOST_LAYERS)


def _draft_vocab(fields: Fields, vocab: int) -> int:
    """Return the size of a vocabulary that is a part of the target's; 0 for all of it."""
    size = fields.positive("draft_vocab_size", default=vocab, most=vocab)
    return 0 if size == vocab else size


def _masks(fields: Fields, inner: Fields, block_size: int) -> tuple[Mask, ...]:
    """Return what the rows of a block see in each layer.

    As published, a sliding layer's block is causal and a full one's is not, unless `is_causal` says so of all.
    """
    kinds = fields.take("layer_types", (list, NoneType), default=None)
    causal, other = (where.take(name, (bool, NoneType), default=None) for where, name in
                     ((fields, "is_causal"), (inner, "causal")))  # fmt: skip
    if causal is not None and other is not None and causal != other:
        raise fields.error("is_causal", f"differs from {inner.prefix}causal")
    causal = other if causal is None else causal
    slides = fields.take("use_sliding_window", (bool, NoneType), default=None)
    if kinds is None:
        if slides:
            raise fields.error("use_sliding_window", "layer_types must say which layers slide")
        kinds = [FULL] * fields.positive("num_hidden_layers", most=MOST_LAYERS)
    if SLIDING in kinds and slides is False:
        raise fields.error("use_sliding_window", f"is false, but layer_types has {SLIDING}")
    window = _window(fields, block_size) if SLIDING in kinds else 0
    return tuple(Mask(window if kind == SLIDING else 0, causal=kind == SLIDING if causal is None else causal)
                 for kind in kinds)  # fmt: skip


def _window(fields: Fields, block_size: int) -> int:
    window = fields.positive("sliding_window", most=_MOST_WINDOW)
    if window < block_size:
        raise fields.error("sliding_window", f"must hold a block of {block_size} rows, is {window}")
    return window


def _scale(fields: Fields, inner: Fields, name: str) -> float:
    return holder_of(fields, inner, name).number(name, default=1.0)


def _cap(fields: Fields, inner: Fields) -> float:
    """Return the bound of the logits; null and 0 are none."""
    name = "final_logit_softcapping"
    holder = holder_of(fields, inner, name)
    return holder.number(name) if holder.take(name, (int, float, NoneType), default=None) else 0.0
