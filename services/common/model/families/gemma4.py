"""Gemma 4 beside models of images and sound, 26B-A4B and 31B: the text is served, by the layers of text alone."""

from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.reading import read_text_of
from services.common.model.reading.renamed import Renamed
from services.common.model.reading.two_sizes import read_two_sizes
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Gemma4ForConditionalGeneration"
_BESIDE = frozenset({
    "audio_config", "audio_token_id", "boa_token_id", "boi_token_id", "eoa_token_id", "eoa_token_index", "eoi_token_id",
    "image_token_id", "video_token_id", "vision_config", "vision_soft_tokens_per_image",
})  # fmt: skip
_SKIPPED = "model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.embed_audio."


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json, whose `text_config` describes the model that is served.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    return read_text_of(fields, folder, read_two_sizes, _BESIDE, tied=True, capped=True)


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors of the model of text; those of images and sound are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    return read_model(spec, Renamed(checkpoint, "model.language_model."), dtype, device, skipped=_SKIPPED)
