"""Text models of Qwen3.5, Qwen3.6 and later, dense: three layers of Gated DeltaNet to one of gated attention."""

from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.hybrid import read_hybrid
from services.common.model.reading.reading import read_causal
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Qwen3_5ForCausalLM"


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    return read_causal(fields, folder, read_hybrid(fields))


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors, which have the common names; those of the drafting head (`mtp.`) are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    return read_model(spec, checkpoint, dtype, device, skipped=("mtp.",))
