"""Families of models: each is one file that turns a configuration into a spec, and names of tensors into weights."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Protocol, cast

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.reading import open_config
from services.common.model.spec import ModelSpec
from services.common.model.weights.weights import ModelWeights


class Family(Protocol):
    """The contents of a family's file."""

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


def _files() -> Iterator[Family]:
    """Every file of this folder; a new file needs no entry elsewhere."""
    for file in iter_modules(__path__):
        yield cast(Family, import_module(f"{__name__}.{file.name}"))


FAMILIES: Mapping[str, Family] = {family.ARCHITECTURE: family for family in _files()}


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
