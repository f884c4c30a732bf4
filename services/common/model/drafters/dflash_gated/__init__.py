"""DFlash with gates of heads, as published for Laguna: the target's features pass norms of their own before the blocks.

Each tap is normalised before `fc`. The context's keys and values stand behind each layer's own norm, as rows of the
block do. Heads are multiplied by the softplus of a number of their own.
"""

from dataclasses import replace
from types import NoneType

from services.common.model.drafters import dflash
from services.common.model.drafters.spec import DrafterSpec
from services.common.model.fields.fields import Fields
from services.common.model.spec import Attention, LayerSpec

ARCHITECTURES = ("DFlashLagunaForCausalLM",)
REFUSED: dict[str, str] = {}
head_shapes, read_stack, read_head = dflash.head_shapes, dflash.read_stack, dflash.read_head
_NEUTRAL = {"gating": ("per-head", True), "num_experts": (0, None), "tie_word_embeddings": (False, None)}


def read_spec(fields: Fields) -> DrafterSpec:
    """Read config.json, whose `dflash_config` is that of other DFlash drafters.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    windows = fields.take("sliding_windows", (list, NoneType), default=None)
    behind = fields.take("eagle_aux_hidden_state_layer_ids", (list, NoneType), default=None)
    spec = dflash.read_spec(fields)
    if windows is not None and windows != [mask.window for mask in spec.masks]:
        raise fields.error("sliding_windows", "differs from layer_types and sliding_window")
    if behind is not None and behind != [layer + 1 for layer in spec.target_layer_ids]:
        raise fields.error("eagle_aux_hidden_state_layer_ids", "must be one behind each of target_layer_ids")
    return replace(spec, layers=tuple(map(_gated, spec.layers)), normed_taps=True)


def _gated(layer: LayerSpec) -> LayerSpec:
    assert isinstance(layer.mixer, Attention), "blocks of a drafter attend"
    return replace(layer, mixer=replace(layer.mixer, head_gates=True))
