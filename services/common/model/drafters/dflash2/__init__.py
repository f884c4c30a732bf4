"""DFlash 2 (github.com/z-lab/dflash): DFlash's block with convolutions around its sublayers, and a selector that
scores the best candidates of each row by the token before.
"""

from dataclasses import dataclass

import torch

from services.common.model.drafters.dflash2.selector import SelectorHead
from services.common.model.drafters.dflash2.stack import ConvWeights, conv_stack
from services.common.model.drafters.reading import finish_block, read_block
from services.common.model.drafters.spec import DrafterSpec, LayerTensors, prefixes
from services.common.model.drafters.vocabulary import read_vocabulary
from services.common.model.fields.fields import Fields
from services.common.model.fields.known_keys import NEUTRAL_DFLASH
from services.common.model.files.checkpoint import IntegerSource
from services.common.model.stack import Stack
from services.common.model.weights.weights import Shapes

ARCHITECTURES = ("DFlash2DraftModel",)
REFUSED: dict[str, str] = {}
_READ = ("conv_kernel_size", "selector_rank")
_CODEBOOKS = "candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook"
_PROJECTION = "candidate_selector.hidden_projection.weight"
_MOST_TAPS, _MOST_RANK, _MOST_CANDIDATES = 16, 1 << 14, 64  # a tree has six bits for a candidate


@dataclass(frozen=True, kw_only=True)
class DFlash2Spec(DrafterSpec):
    """A convolution sees `taps` rows and has a kernel for each `group` columns; the selector scores `candidates`."""

    taps: int
    group: int
    rank: int
    candidates: int

    @property
    def scores_all(self) -> bool:
        """Codebooks have a line for each of the target's tokens."""
        return True


def read_spec(fields: Fields) -> DFlash2Spec:
    """Read config.json as z-lab writes it.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    inner = fields.nested("dflash_config")
    taps = inner.positive("conv_kernel_size", most=_MOST_TAPS)
    group = inner.positive("conv_group_size")
    rank = inner.positive("selector_rank", most=_MOST_RANK)
    candidates = inner.positive("selector_top_k", most=_MOST_CANDIDATES)
    block = read_block(fields, inner)
    for name in NEUTRAL_DFLASH.keys() - _READ:
        inner.neutral(name, NEUTRAL_DFLASH[name])
    if block.draft_vocab:
        raise fields.error("draft_vocab_size", "a selector scores all of the target's vocabulary")
    if block.anchor_predicts:
        raise fields.error("sample_from_anchor", "true is not supported: the selector's drafts begin behind the anchor")
    if block.hidden_size % group:
        raise inner.error("conv_group_size", f"{group} does not divide hidden_size {block.hidden_size}")
    if candidates > block.vocab_size:
        raise inner.error("selector_top_k", f"{candidates} is more than the vocabulary of {block.vocab_size}")
    finish_block(fields, inner)
    return DFlash2Spec(**vars(block), taps=taps, group=group, rank=rank, candidates=candidates)


def head_shapes(spec: DrafterSpec) -> Shapes:
    """Return the tensors of convolutions and selector."""
    assert isinstance(spec, DFlash2Spec), "the spec of this kind"
    width = spec.hidden_size
    shapes: Shapes = {_PROJECTION: (spec.rank, width)}
    shapes |= dict.fromkeys(_CODEBOOKS, (spec.vocab_size, spec.rank))
    for prefix in prefixes(spec):
        for side in ("attention_conv", "mlp_conv"):
            shapes[f"{prefix}.{side}.base_kernel"] = (2, spec.taps, width)
            shapes[f"{prefix}.{side}.kernel_projection.weight"] = (2 * spec.taps * width // spec.group, width)
    return shapes


def read_head(spec: DrafterSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> SelectorHead:
    """Read the head that chooses among candidates: two codebooks and the projection between them."""
    assert isinstance(spec, DFlash2Spec), "the spec of this kind"
    shapes = head_shapes(spec)
    read_vocabulary(spec, checkpoint, device)
    before_VR, after_VR, hidden_RD = (
        checkpoint.read(name, shapes[name], dtype).to(device) for name in (*_CODEBOOKS, _PROJECTION)
    )
    return SelectorHead(spec, before_VR, after_VR, hidden_RD, spec.candidates)


def read_stack(tensors: LayerTensors, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> Stack:
    """Read the convolutions; return the blocks with them."""
    spec = tensors.spec
    assert isinstance(spec, DFlash2Spec), "the spec of this kind"
    shapes = head_shapes(spec)

    def read(name: str) -> ConvWeights:
        base, projection = f"{name}.base_kernel", f"{name}.kernel_projection.weight"
        return ConvWeights(
            checkpoint.read(base, shapes[base], dtype).to(device),
            checkpoint.read(projection, shapes[projection], dtype).to(device),
        )

    convs = [(read(f"{prefix}.attention_conv"), read(f"{prefix}.mlp_conv")) for prefix in prefixes(spec)]
    return conv_stack(tensors, convs)
