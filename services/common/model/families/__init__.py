"""Families of models: each is one file that turns a configuration into a spec, and names of tensors into weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch

from services.common.model.checkpoint import TensorSource
from services.common.model.families import qwen3
from services.common.model.fields import Fields
from services.common.model.reading import open_config
from services.common.model.spec import ModelSpec
from services.common.model.weights import ModelWeights


class Family(Protocol):
    """What a family's file holds."""

    ARCHITECTURE: str
    """As `architectures` of config.json names it."""

    def read_spec(self, fields: Fields, folder: Path) -> ModelSpec:
        """Read config.json, and what else of the folder describes the model."""
        ...

    def read_weights(
        self, spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device
    ) -> ModelWeights:
        """Read the tensors, fused as the blocks take them."""
        ...


_FILES: tuple[Family, ...] = (qwen3,)
FAMILIES: Mapping[str, Family] = {family.ARCHITECTURE: family for family in _FILES}


def open_family(folder: Path) -> tuple[Family, ModelSpec]:
    """Return the family that a folder's config.json names, and the spec that it makes of it.

    Raises:
        ModelError: a file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    name, fields = open_config(folder, FAMILIES)
    family = FAMILIES[name]
    return family, family.read_spec(fields, folder)


def read_target_spec(folder: Path) -> ModelSpec:
    """Return the spec of a folder's model.

    Raises:
        ModelError: as `open_family`.
    """
    return open_family(folder)[1]
