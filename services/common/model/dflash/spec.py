"""The spec of a DFlash drafter, read from config.json, and the tensors that it asks for."""

import reprlib
from dataclasses import dataclass
from pathlib import Path

import torch

from services.common.model.checkpoint import Checkpoint, TensorSource
from services.common.model.fields import Fields
from services.common.model.generation import token_ids
from services.common.model.known_keys import IGNORED, NEUTRAL_DFLASH
from services.common.model.random_weights import RandomCheckpoint
from services.common.model.reading import MOST_LAYERS, finish, open_config, read_stack
from services.common.model.spec import StackSpec
from services.common.model.weights import Shapes, layer_shapes

FC, HIDDEN_NORM, NORM = "fc.weight", "hidden_norm.weight", "norm.weight"
_ARCHITECTURE = "DFlashDraftModel"
_MOST_BLOCK = 1 << 10


@dataclass(frozen=True, kw_only=True)
class DrafterSpec(StackSpec):
    """A DFlash drafter; `target_layer_ids` are the target blocks whose outputs it reads."""

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int


def read_drafter_spec(folder: Path) -> DrafterSpec:
    """Read config.json in the published layout (`dflash_config` holds the mask id and the layers).

    Raises:
        ModelError: the file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    _, fields = open_config(folder, {_ARCHITECTURE})
    stack = read_stack(fields, bias=False, qk_norm=True)
    inner = fields.nested("dflash_config")
    for name, allowed in NEUTRAL_DFLASH.items():
        inner.neutral(name, allowed)
    block_size = _block_size(fields, inner)
    num_target_layers = fields.positive("num_target_layers", most=MOST_LAYERS)
    default = default_layer_ids(num_target_layers, len(stack.layers))
    layer_ids = tuple(inner.take("target_layer_ids", (list,), default=list(default)))
    if not layer_ids or any(type(i) is not int or not 0 <= i < num_target_layers for i in layer_ids):
        raise inner.error("target_layer_ids", f"must be ids below {num_target_layers}: {reprlib.repr(layer_ids)}")
    (mask_id,) = token_ids(inner, "mask_token_id", [inner.take("mask_token_id", (int,))], stack.vocab_size)
    if fields.take("draft_vocab_size", (int, type(None)), default=None) not in (None, stack.vocab_size):
        raise fields.error("draft_vocab_size", "a reduced draft vocabulary is not supported")
    fields.take("tie_word_embeddings", (bool,), default=False)
    fields.take("eos_token_id", (int, list, type(None)), default=None)
    inner.finish(frozenset())
    finish(fields, IGNORED)
    return DrafterSpec(**vars(stack), block_size=block_size, mask_token_id=mask_id, target_layer_ids=layer_ids,
                       num_target_layers=num_target_layers)  # fmt: skip


def default_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """Return the layers that DFlash reads when a checkpoint names none: evenly spread from 1 to L - 3."""
    if draft_layers == 1 or target_layers < 4:
        return (target_layers // 2,)
    step = (target_layers - 4) / (draft_layers - 1)
    return tuple(round(1 + index * step) for index in range(draft_layers))


def open_drafter(folder: Path, device: torch.device, random_weights: bool) -> tuple[DrafterSpec, TensorSource]:
    """Return a drafter's spec and its tensors.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    spec = read_drafter_spec(folder)
    checkpoint: TensorSource = RandomCheckpoint(folder, device) if random_weights else Checkpoint(folder)
    checkpoint.refuse_other_than(drafter_shapes(spec))
    return spec, checkpoint


def prefixes(spec: DrafterSpec) -> list[str]:
    """Return how the names of each layer's tensors begin."""
    return [f"layers.{index}" for index in range(len(spec.layers))]


def drafter_shapes(spec: DrafterSpec) -> Shapes:
    """Return name and shape of every tensor of a checkpoint."""
    fc = {name: shape for name, shape in context_shapes(spec).items() if name in (FC, HIDDEN_NORM)}
    return fc | block_shapes(spec)


def context_shapes(spec: DrafterSpec) -> Shapes:
    """Return those that the target reads: layers give their keys and values only."""
    width = spec.hidden_size
    shapes: Shapes = {FC: (width, len(spec.target_layer_ids) * width), HIDDEN_NORM: (width,)}
    read = ("k_proj.weight", "v_proj.weight", "k_norm.weight")
    return shapes | {name: shape for name, shape in block_shapes(spec).items() if name.endswith(read)}


def block_shapes(spec: DrafterSpec) -> Shapes:
    """Return those that the drafter itself reads."""
    shapes: Shapes = {NORM: (spec.hidden_size,)}
    for prefix, layer in zip(prefixes(spec), spec.layers, strict=True):
        shapes |= layer_shapes(layer, spec.hidden_size, prefix)
    return shapes


def _block_size(fields: Fields, inner: Fields) -> int:
    """Return the block's size, which stands beside `dflash_config` or, in newer files, in it."""
    own, other = (where.take("block_size", (int, type(None)), default=None) for where in (fields, inner))
    if own is not None and other is not None and own != other:
        raise fields.error("block_size", "differs from dflash_config.block_size")
    size: int = (fields if own is not None else inner).positive("block_size", most=_MOST_BLOCK)
    if size < 2:
        raise fields.error("block_size", f"must be at least 2, is {size}")
    return size
