"""Qwen3.5, Qwen3.6 and later, dense, as published: a model of text, and one of images that is not served."""

from pathlib import Path

import torch

from services.common.model.checkpoint import TensorSource
from services.common.model.fields import Fields
from services.common.model.hybrid import read_hybrid
from services.common.model.known_keys import IGNORED
from services.common.model.reading import finish, read_causal, refuse_known
from services.common.model.renamed import Renamed
from services.common.model.spec import ModelSpec
from services.common.model.weights import ModelWeights, read_model

ARCHITECTURE = "Qwen3_5ForConditionalGeneration"
_OF_IMAGES = frozenset({
    "image_token_id", "language_model_only", "video_token_id", "vision_config", "vision_end_token_id",
    "vision_start_token_id",
})  # fmt: skip


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json, whose `text_config` describes the model that is served.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    text = fields.nested("text_config")
    if not text:
        raise fields.error("text_config", "is missing")
    refuse_known(fields)
    tied = fields.take("tie_word_embeddings", (bool,), default=False)
    finish(fields, IGNORED | _OF_IMAGES)
    return read_causal(text, folder, read_hybrid(text), tied)


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors of the model of text; those of images and of the drafting head are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    source = Renamed(checkpoint, "model.language_model.")
    return read_model(spec, source, dtype, device, skipped=("model.visual.", "mtp."))
