"""Qwen3 with experts (Qwen3-30B-A3B, Qwen3-Coder): as Qwen3, with a mixture of experts in place of SwiGLU."""

from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.experts import read_experts
from services.common.model.reading.reading import read_causal, read_stack
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Qwen3MoeForCausalLM"
_NEUTRAL = {"qkv_bias": (False, None), "use_qk_norm": (True, None)}
"""Keys that Qwen3-Coder's files have, and what they say there."""


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    return read_causal(fields, folder, read_stack(fields, bias=False, qk_norm=True, ffns=read_experts))


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors, which have the common names.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    return read_model(spec, checkpoint, dtype, device)
