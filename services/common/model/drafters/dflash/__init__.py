"""DFlash (github.com/z-lab/dflash), the first generation: one block at once, each row's best token by itself."""

from types import NoneType

import torch

from services.common.model.checkpoint import TensorSource
from services.common.model.drafters.heads import ArgmaxHead
from services.common.model.drafters.reading import finish_block, read_block
from services.common.model.drafters.spec import DrafterSpec, LayerTensors
from services.common.model.fields import Fields
from services.common.model.known_keys import NEUTRAL_DFLASH
from services.common.model.stack import Stack, draft_stack
from services.common.model.weights import Shapes

ARCHITECTURES = ("DFlashDraftModel",)
OPTIONAL: tuple[str, ...] = ()
_INSTEAD = f"take a {ARCHITECTURES[0]} of this target, or n-gram drafts, which need no checkpoint"
_SPECULATORS = (
    "files of the speculators library are not supported: they count layers otherwise, and their vocabulary may be a "
    f"part of the target's. Convert it to z-lab's layout, {_INSTEAD}"
)
REFUSED = {
    "DFlashLagunaForCausalLM": f"Laguna's gated attention is not supported: {_INSTEAD}",
    "DFlashSpeculator": _SPECULATORS,
}


def read_spec(fields: Fields) -> DrafterSpec:
    """Read config.json in the published layouts, which differ in what `dflash_config` holds and what stands beside it.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    if fields.take("speculators_model_type", (bool, int, float, str, list, dict, NoneType), default=None) is not None:
        raise fields.error("speculators_model_type", _SPECULATORS)
    inner = fields.nested("dflash_config")
    spec = read_block(fields, inner)
    for name, allowed in NEUTRAL_DFLASH.items():
        inner.neutral(name, allowed)
    if fields.take("draft_vocab_size", (int, NoneType), default=None) not in (None, spec.vocab_size):
        raise fields.error("draft_vocab_size", f"a reduced draft vocabulary is not supported: {_INSTEAD}")
    finish_block(fields, inner)
    return spec


def head_shapes(spec: DrafterSpec) -> Shapes:
    """None: the head is the target's."""
    return {}


def read_stack(tensors: LayerTensors, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> Stack:
    """Return blocks of attention and SwiGLU."""
    return draft_stack(tensors.spec, tensors.layers, tensors.norm_D, tensors.views)


def read_head(spec: DrafterSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ArgmaxHead:
    """Nothing to read."""
    return ArgmaxHead(spec)
