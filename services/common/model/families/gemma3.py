"""Gemma 3 beside a model of images, 4B to 27B (arXiv:2503.19786): the text is served, by the same layers as 1B's."""

from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.reading import read_text_of
from services.common.model.reading.renamed import Renamed
from services.common.model.reading.sandwich import read_sandwich
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Gemma3ForConditionalGeneration"
_USUAL = {
    "head_dim": 256, "max_position_embeddings": 131072, "num_attention_heads": 8, "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256, "vocab_size": 262208,
}  # fmt: skip
"""What published files leave out."""
_OF_IMAGES = frozenset({
    "boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image", "vision_config",
})  # fmt: skip
_PREFIXES = "language_model.model.", "model.language_model."
"""Of names of tensors, older and newer."""
_SKIPPED = "vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json, whose `text_config` describes the model that is served.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    return read_text_of(fields, folder, read_sandwich, _OF_IMAGES, tied=True, usual=_USUAL)


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors of the model of text; those of images are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    older = any(name.startswith(_PREFIXES[0]) for name in checkpoint.names)
    return read_model(spec, Renamed(checkpoint, _PREFIXES[0 if older else 1]), dtype, device, skipped=_SKIPPED)
