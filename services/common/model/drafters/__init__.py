"""Kinds of drafters: each is one folder that says which checkpoints it reads, what tensors they hold, and how its head
chooses tokens. What kinds share stands in the files beside: `block` runs in the drafter, `context` in the target.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Protocol, cast

import torch

from services.common.model.checkpoint import CONFIG_FILE, IntegerSource, TensorSource
from services.common.model.drafters import speculators
from services.common.model.drafters.heads import DraftHead
from services.common.model.drafters.spec import EMBED, HEAD, DrafterSpec, LayerTensors, drafter_shapes
from services.common.model.errors import ModelError
from services.common.model.fields import Fields
from services.common.model.formats import open_safetensors
from services.common.model.random_weights import RandomCheckpoint
from services.common.model.reading import open_config
from services.common.model.spec import ModelSpec
from services.common.model.stack import Stack
from services.common.model.weights import Shapes

SKIPPED = ("t2d", "verifier_")
"""Beginnings of names of tensors that are for training alone."""


class Kind(Protocol):
    """The contents of a kind's folder."""

    ARCHITECTURES: tuple[str, ...]
    """As `architectures` of config.json names it."""

    REFUSED: Mapping[str, str]
    """Relatives that are known and not served: the reason, by architecture."""

    def read_spec(self, fields: Fields) -> DrafterSpec:
        """Read config.json; every key must be understood."""
        ...

    def head_shapes(self, spec: DrafterSpec) -> Shapes:
        """Return name and shape of the tensors that this kind has beside those of every block."""
        ...

    def read_stack(
        self, tensors: LayerTensors, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device
    ) -> Stack:
        """Return the blocks, with what this kind adds to them."""
        ...

    def read_head(
        self, spec: DrafterSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device
    ) -> DraftHead:
        """Read what chooses tokens out of hidden states."""
        ...


def _folders() -> Mapping[str, Kind]:
    """Every folder of this one by name; a new folder needs no entry elsewhere."""
    names = [one.name for one in iter_modules(__path__) if one.ispkg]
    return {name: cast(Kind, import_module(f"{__name__}.{name}")) for name in names}


KINDS: Mapping[str, Kind] = _folders()
_BY_ARCHITECTURE = {architecture: name for name, kind in KINDS.items() for architecture in kind.ARCHITECTURES}
_REFUSED = {architecture: reason for kind in KINDS.values() for architecture, reason in kind.REFUSED.items()}


def read_drafter_spec(folder: Path) -> DrafterSpec:
    """Return the spec of a folder's drafter.

    Raises:
        ModelError: the file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    name = speculators.kind_of(folder)
    if name is None:
        architecture, fields = open_config(folder, _BY_ARCHITECTURE, _REFUSED)
        name = _BY_ARCHITECTURE[architecture]
    elif name in KINDS:
        fields = speculators.translated(folder)
    else:
        told = f"{name!r} is not supported, only {sorted(KINDS)}"
        raise ModelError(f"{folder / CONFIG_FILE}: {speculators.TYPE}: {told}")
    spec = KINDS[name].read_spec(fields)
    return replace(spec, kind=name, own_tables=(HEAD,) if spec.draft_vocab else ())


def open_drafter(folder: Path, device: torch.device, random_weights: bool) -> tuple[DrafterSpec, IntegerSource]:
    """Return a drafter's spec and its tensors.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    spec = read_drafter_spec(folder)
    checkpoint: IntegerSource = RandomCheckpoint(folder, device) if random_weights else open_safetensors(folder)
    spec = carrying(spec, checkpoint)
    checkpoint.refuse_other_than(checkpoint_shapes(spec), SKIPPED)
    return spec, checkpoint


def carrying(spec: DrafterSpec, checkpoint: TensorSource) -> DrafterSpec:
    """Return the spec with the tables that the checkpoint carries."""
    carried = (name for name in (EMBED, HEAD) if name in checkpoint.names)
    return replace(spec, own_tables=tuple(dict.fromkeys((*spec.own_tables, *carried))))


def check_pair(folder: Path, drafter: DrafterSpec, target: ModelSpec) -> None:
    """Check that a drafter was made for a target.

    Raises:
        ModelError: it was made for another one.
    """
    layers = len(target.layers)
    if (most := max(drafter.target_layer_ids)) >= layers:
        raise ModelError(f"{folder}/config.json: it reads layer {most}, the target has {layers}, counted from 0")
    for name, other in (("hidden_size", target.hidden_size), ("vocab_size", target.vocab_size),
                        ("num_target_layers", layers)):  # fmt: skip
        if getattr(drafter, name) != other and (name != "num_target_layers" or drafter.num_target_layers):
            raise ModelError(
                f"{folder}/config.json: {name}: {getattr(drafter, name)} differs from the target's {other}"
            )


def checkpoint_shapes(spec: DrafterSpec) -> Shapes:
    """Return name and shape of every tensor of a checkpoint."""
    return drafter_shapes(spec) | own_shapes(spec)


def own_shapes(spec: DrafterSpec) -> Shapes:
    """Return those of its kind alone."""
    return KINDS[spec.kind].head_shapes(spec)
