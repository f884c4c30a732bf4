"""DSpark (github.com/deepseek-ai/DeepSpec): DFlash's block, whose rows' logits are biased by the token before each.

The anchor's row predicts too. Files of rank 0 have no bias: they are plain blocks in this layout.
"""

from dataclasses import dataclass

import torch

from services.common.model.drafters.dspark.confidence import Confidence
from services.common.model.drafters.dspark.markov import MarkovHead
from services.common.model.drafters.heads import ArgmaxHead, DraftHead
from services.common.model.drafters.reading import finish_block, read_block
from services.common.model.drafters.spec import DrafterSpec, LayerTensors
from services.common.model.drafters.vocabulary import read_vocabulary
from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import IntegerSource
from services.common.model.reading.reading import SLIDING
from services.common.model.stack import Stack, draft_stack
from services.common.model.weights.weights import Shapes

ARCHITECTURES = ("Qwen3DSparkModel", "DSparkDraftModel")
REFUSED: dict[str, str] = {}
_FIRST, _SECOND = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"
_CONFIDENCE = "confidence_head.proj"
_MOST_RANK = 1 << 14


@dataclass(frozen=True, kw_only=True)
class DSparkSpec(DrafterSpec):
    """`markov_rank` is 0 without a bias; `confidence_inputs` is 0 without a head that predicts acceptance."""

    markov_rank: int
    confidence_inputs: int


def read_spec(fields: Fields) -> DSparkSpec:
    """Read config.json as DeepSpec writes it: the keys of the drafter stand beside those of its layers.

    Where a file does not say, the anchor's row predicts.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    anchored = fields.take("sample_from_anchor", (bool, type(None)), default=None) is not False
    inner = fields.nested("dflash_config")
    if SLIDING in (fields.take("layer_types", (list, type(None)), default=None) or ()):
        raise fields.error("layer_types", f"a DSpark drafter with {SLIDING} is not supported")
    block = read_block(fields, inner)
    rank = fields.take("markov_rank", (int,), default=0)
    if not 0 <= rank <= _MOST_RANK:
        raise fields.error("markov_rank", f"must be in [0, {_MOST_RANK}], is {rank}")
    head_type = fields.take("markov_head_type", (str, type(None)), default=None)
    if rank and head_type not in (None, "vanilla"):
        raise fields.error("markov_head_type", f"{head_type!r} is not supported, only 'vanilla' is published")
    confident = fields.take("enable_confidence_head", (bool,), default=False)
    with_markov = fields.take("confidence_head_with_markov", (bool,), default=False)
    if with_markov and confident and not rank:
        raise fields.error("confidence_head_with_markov", "asks for a markov_rank above 0")
    fields.take("num_anchors", (int, type(None)), default=None)
    inputs = block.hidden_size + (rank if with_markov else 0)
    finish_block(fields, inner)
    own = vars(block) | {"anchor_predicts": anchored}
    return DSparkSpec(**own, markov_rank=rank, confidence_inputs=inputs if confident else 0)


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
