"""Qwen3.5, Qwen3.6 and later, with experts, as published: a model of text, and one of images that is not served."""

from functools import partial
from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.experts import read_experts
from services.common.model.reading.hybrid import read_text_part
from services.common.model.reading.renamed import Renamed
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Qwen3_5MoeForConditionalGeneration"


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json, whose `text_config` describes the model that is served.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    return read_text_part(fields, folder, partial(read_experts, renorm=(True,), shared=True))


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors of the model of text; those of images and of the drafting head are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    source = Renamed(checkpoint, "model.language_model.")
    return read_model(spec, source, dtype, device, skipped=("model.visual.", "mtp."))
