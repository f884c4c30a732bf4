"""The specs of drafters that fill a block at once, with the tensors that every kind asks for, and of chains."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from services.common.kernels.span_attention import Mask
from services.common.model.spec import StackSpec
from services.common.model.weights.weights import LayerWeights, Shapes, layer_shapes

FC, HIDDEN_NORM, NORM = "fc.weight", "hidden_norm.weight", "norm.weight"
INPUT_NORM = "input_layernorm.weight"
"""Of a block."""
EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
"""Tables that some files carry beside; others take the target's."""
DRAFT_TO_TARGET = "d2t"
"""How far the target's token of each entry of a reduced vocabulary stands from the entry."""


@dataclass(frozen=True, kw_only=True)
class AnyDrafterSpec(StackSpec):
    """A drafter of a kind; `target_layer_ids` are the target blocks whose outputs it reads.

    `own_tables` are names of tables that the file carries; of one that is `tied` the embedding is the head too, if it
    carries no other. `draft_vocab` is the size of a vocabulary that is a part of the target's, 0 for all of it.
    `num_target_layers` is 0 where the file does not say.
    """

    kind: str = ""
    target_layer_ids: tuple[int, ...]
    num_target_layers: int = 0
    own_tables: tuple[str, ...] = ()
    tied: bool = False
    draft_vocab: int = 0

    @property
    def scored(self) -> int:
        """Tokens that the head scores."""
        return self.draft_vocab or self.vocab_size

    @property
    def scores_all(self) -> bool:
        """Whether the head's entries must be all of the target's tokens, in their order."""
        return False


@dataclass(frozen=True, kw_only=True)
class ChainSpec(AnyDrafterSpec):
    """A drafter of one layer that runs once for each token.

    Its row at a position is made of the token there, and of a state of the position before: the target's, or its own.
    A drafter that reads streams as they are is `raw`; the target's last one is normalised. Without `target_layer_ids`
    it reads three that follow from the target's depth.
    """

    raw: bool = False


@dataclass(frozen=True, kw_only=True)
class DrafterSpec(AnyDrafterSpec):
    """A drafter that fills a block.

    `masks` are what the rows of its block see in each layer. A window is counted from each row, not from the block's
    anchor: row j, at position length + j, sees the positions from length + j + 1 - window on. So the published code
    computes, and so its drafters were trained. Logits are multiplied by `logit_scale`, then bounded by `logit_cap`
    (0 is no bound) as `cap * tanh(logit / cap)`. A row of the block predicts the token at its own position, or where
    `anchor_predicts` the token behind it, the anchor's row too. `short_sizes` are sizes below `block_size` that it was
    trained for too. With `normed_taps` each tap passes a norm of its own before `fc`, and what comes out each layer's
    own before its keys and values.
    """

    block_size: int
    mask_token_id: int
    masks: tuple[Mask, ...]
    logit_scale: float = 1.0
    logit_cap: float = 0.0
    anchor_predicts: bool = False
    short_sizes: tuple[int, ...] = ()
    normed_taps: bool = False

    def unsure(self) -> "DrafterSpec":
        """Return the spec without a head of confidence, which some kinds have."""
        return self

    @property
    def first_row(self) -> int:
        """The row of a block that predicts the first draft."""
        return 0 if self.anchor_predicts else 1

    def block_for(self, drafts: int) -> int:
        """Return the smallest size of a trained block with so many drafts."""
        needed = drafts + self.first_row
        return min((size for size in self.short_sizes if size >= needed), default=self.block_size)

    @property
    def most_drafts(self) -> int:
        """Drafts of a block as long as the checkpoint was made for."""
        return self.block_size - self.first_row


@dataclass(frozen=True)
class LayerTensors:
    """What every kind's blocks are made of; `views` tells by layer which of a block's views it sees."""

    spec: DrafterSpec
    layers: Sequence[LayerWeights]
    norm_D: Tensor
    views: Sequence[int]


def prefixes(spec: DrafterSpec) -> list[str]:
    """Return how the names of each layer's tensors begin."""
    return [f"layers.{index}" for index in range(len(spec.layers))]


def drafter_shapes(spec: DrafterSpec) -> Shapes:
    """Return name and shape of every tensor of a checkpoint."""
    before = (FC, HIDDEN_NORM, *tap_norms(spec))
    return {name: shape for name, shape in context_shapes(spec).items() if name in before} | block_shapes(spec)


def tap_norms(spec: DrafterSpec) -> list[str]:
    """Return the names of the taps' norms, where they have any."""
    count = len(spec.target_layer_ids) if spec.normed_taps else 0
    return [f"aux_hidden_norms.{index}.weight" for index in range(count)]


def context_shapes(spec: DrafterSpec) -> Shapes:
    """Return those that the target reads: layers give their keys and values only."""
    width = spec.hidden_size
    shapes: Shapes = {FC: (width, len(spec.target_layer_ids) * width), HIDDEN_NORM: (width,)}
    shapes |= dict.fromkeys(tap_norms(spec), (width,))
    read = ("k_proj.weight", "v_proj.weight", "k_norm.weight", *([INPUT_NORM] if spec.normed_taps else []))
    return shapes | {name: shape for name, shape in block_shapes(spec).items() if name.endswith(read)}


def table_shapes(spec: AnyDrafterSpec) -> Shapes:
    """Return those of an embedding and a head of the file's own, and of what a reduced vocabulary needs."""
    lines = {EMBED: spec.vocab_size, HEAD: spec.scored}
    shapes: Shapes = {name: (lines[name], spec.hidden_size) for name in spec.own_tables}
    return shapes | {DRAFT_TO_TARGET: (spec.draft_vocab,)} if spec.draft_vocab else shapes


def block_shapes(spec: DrafterSpec) -> Shapes:
    """Return those that the drafter itself reads."""
    shapes: Shapes = {NORM: (spec.hidden_size,)}
    shapes |= table_shapes(spec)
    for prefix, layer in zip(prefixes(spec), spec.layers, strict=True):
        shapes |= layer_shapes(layer, spec.hidden_size, prefix)
    return shapes
