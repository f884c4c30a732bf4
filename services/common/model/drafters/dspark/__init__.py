"""DSpark (github.com/deepseek-ai/DeepSpec): DFlash's block, whose rows' logits are biased by the token before each.

The anchor's row predicts too. Files of rank 0 have no bias: they are plain blocks in this layout.
"""

from dataclasses import dataclass, replace

import torch

from services.common.model.drafters.dspark.confidence import Confidence
from services.common.model.drafters.dspark.markov import MarkovHead
from services.common.model.drafters.heads import ArgmaxHead, DraftHead
from services.common.model.drafters.reading import finish_block, holder_of, read_block
from services.common.model.drafters.spec import DrafterSpec, LayerTensors
from services.common.model.drafters.vocabulary import read_vocabulary
from services.common.model.fields.fields import Fields
from services.common.model.fields.known_keys import NEUTRAL_DFLASH
from services.common.model.files.checkpoint import IntegerSource
from services.common.model.reading.reading import SLIDING
from services.common.model.stack import Stack, draft_stack
from services.common.model.weights.weights import Shapes

ARCHITECTURES = ("Qwen3DSparkModel", "DSparkDraftModel")
PROJECTORS = ("dspark",)
"""What `dflash_config` calls this kind in files under the name of DFlash."""
REFUSED: dict[str, str] = {}
_FIRST, _SECOND = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"
_CONFIDENCE = "confidence_head.proj"
_MOST_RANK = 1 << 14
_FLAG = bool, type(None)
_NEUTRAL = {**NEUTRAL_DFLASH, "attention_mode": (None, "gqa"), "projector_type": (None, *PROJECTORS)}
"""Latent and recurrent attention are other arithmetic."""


@dataclass(frozen=True, kw_only=True)
class DSparkSpec(DrafterSpec):
    """`markov_rank` is 0 without a bias; `confidence_inputs` is 0 without a head that predicts acceptance."""

    markov_rank: int
    confidence_inputs: int

    def unsure(self) -> "DSparkSpec":
        """As elsewhere: its tensors are not read then."""
        return replace(self, confidence_inputs=0)


def read_spec(fields: Fields) -> DSparkSpec:
    """Read config.json as DeepSpec writes it, or with the drafter's keys in `dflash_config`, as its other makers do.

    Where a file does not say, the anchor's row predicts.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    inner = fields.nested("dflash_config")
    anchored = _anchored(fields, inner)
    if SLIDING in (fields.take("layer_types", (list, type(None)), default=None) or ()):
        raise fields.error("layer_types", f"a DSpark drafter with {SLIDING} is not supported")
    block = read_block(fields, inner)
    holder = holder_of(fields, inner, "markov_rank")
    rank = holder.take("markov_rank", (int,), default=0)
    if not 0 <= rank <= _MOST_RANK:
        raise holder.error("markov_rank", f"must be in [0, {_MOST_RANK}], is {rank}")
    holder = holder_of(fields, inner, "markov_head_type")
    head_type = holder.take("markov_head_type", (str, type(None)), default=None)
    if rank and head_type not in (None, "vanilla"):
        raise holder.error("markov_head_type", f"{head_type!r} is not supported, only 'vanilla' is published")
    inputs = _confidence_inputs(fields, inner, block.hidden_size, rank)
    fields.take("num_anchors", (int, type(None)), default=None)
    fields.neutral("target_hidden_size", (None, block.hidden_size))
    for name, allowed in _NEUTRAL.items():
        inner.neutral(name, allowed)
    inner.take("confidence_head_alpha", (int, float, type(None)), default=None)
    finish_block(fields, inner)
    own = vars(block) | {"anchor_predicts": anchored}
    return DSparkSpec(**own, markov_rank=rank, confidence_inputs=inputs)


def _anchored(fields: Fields, inner: Fields) -> bool:
    """Return whether the anchor's row predicts: as labels were shifted in training, where a file says only that."""
    said = holder_of(fields, inner, "sample_from_anchor").take("sample_from_anchor", _FLAG, default=None)
    shifted = inner.take("shift_label", _FLAG, default=None)
    if said is not None and shifted is not None and said != shifted:
        raise inner.error("shift_label", "differs from sample_from_anchor")
    return (shifted if said is None else said) is not False


def _confidence_inputs(fields: Fields, inner: Fields, hidden: int, rank: int) -> int:
    """Return what the head of confidence reads of a row, 0 without one.

    Files with the keys in `dflash_config` mean the code of the token before as well where they do not say.
    """
    holder = holder_of(fields, inner, "enable_confidence_head")
    confident = holder.take("enable_confidence_head", _FLAG, default=None) or inner.take(
        "use_confidence_head", _FLAG, default=None
    )
    holder = holder_of(fields, inner, "confidence_head_with_markov")
    with_markov = holder.take("confidence_head_with_markov", _FLAG, default=None)
    if with_markov is None:
        with_markov = bool(inner and rank)
    if with_markov and confident and not rank:
        raise holder.error("confidence_head_with_markov", "asks for a markov_rank above 0")
    return hidden + (rank if with_markov else 0) if confident else 0


def head_shapes(spec: DrafterSpec) -> Shapes:
    """Return the tables of the bias, and the head of confidence."""
    assert isinstance(spec, DSparkSpec), "the spec of this kind"
    shapes: Shapes = {}
    if spec.markov_rank:
        shapes |= {_FIRST: (spec.vocab_size, spec.markov_rank), _SECOND: (spec.scored, spec.markov_rank)}
    if spec.confidence_inputs:
        shapes |= {f"{_CONFIDENCE}.weight": (1, spec.confidence_inputs), f"{_CONFIDENCE}.bias": (1,)}
    return shapes


def read_stack(tensors: LayerTensors, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> Stack:
    """Return blocks of attention and SwiGLU."""
    return draft_stack(tensors.spec, tensors.layers, tensors.norm_D, tensors.views)


def read_head(spec: DrafterSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> DraftHead:
    """Read the bias, where there is one."""
    assert isinstance(spec, DSparkSpec), "the spec of this kind"
    vocabulary = read_vocabulary(spec, checkpoint, device)
    if not spec.markov_rank:
        return ArgmaxHead(spec, vocabulary)
    shapes = head_shapes(spec)
    first_VR, second_VR = (checkpoint.read(name, shapes[name], dtype).to(device) for name in (_FIRST, _SECOND))
    confidence = None
    if spec.confidence_inputs:
        names = f"{_CONFIDENCE}.weight", f"{_CONFIDENCE}.bias"
        weight_1F, bias_1 = (checkpoint.read(name, shapes[name], dtype).to(device) for name in names)
        confidence = Confidence(weight_1F[0], bias_1, spec.hidden_size)
    return MarkovHead(spec, first_VR, second_VR, vocabulary, confidence)
