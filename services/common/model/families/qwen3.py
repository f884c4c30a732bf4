"""Qwen3, dense (technical report, 2025): heads of queries and keys are normalised, nothing has a bias."""

from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.reading import read_causal, read_stack
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Qwen3ForCausalLM"


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    return read_causal(fields, folder, read_stack(fields, bias=False, qk_norm=True))


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors, which have the common names.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    return read_model(spec, checkpoint, dtype, device)
