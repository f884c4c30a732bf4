"""DFlash (github.com/z-lab/dflash), the first generation: one block at once, each row's best token by itself."""

import torch

from services.common.model.drafters.heads import ArgmaxHead
from services.common.model.drafters.reading import finish_block, read_block
from services.common.model.drafters.spec import DrafterSpec, LayerTensors
from services.common.model.drafters.vocabulary import read_vocabulary
from services.common.model.fields.fields import Fields
from services.common.model.fields.known_keys import NEUTRAL_DFLASH
from services.common.model.files.checkpoint import IntegerSource
from services.common.model.stack import Stack, draft_stack
from services.common.model.weights.weights import Shapes

ARCHITECTURES = ("DFlashDraftModel",)
REFUSED: dict[str, str] = {}


def read_spec(fields: Fields) -> DrafterSpec:
    """Read config.json in the published layouts, which differ in what `dflash_config` holds and what stands beside it.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    inner = fields.nested("dflash_config")
    spec = read_block(fields, inner)
    for name, allowed in NEUTRAL_DFLASH.items():
        inner.neutral(name, allowed)
    finish_block(fields, inner)
    return spec


def head_shapes(spec: DrafterSpec) -> Shapes:
    """None: the head is a table."""
    return {}


def read_stack(tensors: LayerTensors, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> Stack:
    """Return blocks of attention and SwiGLU."""
    return draft_stack(tensors.spec, tensors.layers, tensors.norm_D, tensors.views)


def read_head(spec: DrafterSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> ArgmaxHead:
    """Read which tokens the head scores."""
    return ArgmaxHead(spec, read_vocabulary(spec, checkpoint, device))
