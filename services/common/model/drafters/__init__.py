"""Kinds of drafters: each is one folder that says which checkpoints it reads, what tensors they hold, and how its head
chooses tokens. What kinds share stands in the files beside: `block` and `chain` run in the drafter, others
in the target.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Protocol, TypeVar, cast

import torch

from services.common.model.drafters import speculators
from services.common.model.drafters.chain_cell import ChainParts
from services.common.model.drafters.heads import DraftHead
from services.common.model.drafters.spec import (
    DRAFT_TO_TARGET,
    EMBED,
    HEAD,
    AnyDrafterSpec,
    ChainSpec,
    DrafterSpec,
    LayerTensors,
    drafter_shapes,
    table_shapes,
)
from services.common.model.fields.errors import ModelError
from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import CONFIG_FILE, IntegerSource
from services.common.model.files.formats import open_safetensors
from services.common.model.files.random_weights import RandomCheckpoint
from services.common.model.reading.reading import open_config
from services.common.model.spec import ModelSpec
from services.common.model.stack import Stack
from services.common.model.weights.weights import Shapes

AnySpec = TypeVar("AnySpec", bound=AnyDrafterSpec)
LAYOUTS: Mapping[str, bool | None] = {"auto": None, "true": True, "false": False}
"""Words of settings for what the anchor's row does: auto is as the file says."""
ANCHORED = ("dflash", "dspark")
"""Kinds of which there are two layouts: the anchor's row predicts, or it does not."""
_REMEDY = ": take a drafter of one of these, or n-gram drafts, which need no checkpoint"
OTHERWISE = ": take another drafter, or n-gram drafts, which need no checkpoint"
_FOR_ANOTHER = ": take a drafter that was made for this model, or n-gram drafts, which need no checkpoint"
_REMEDIES = ": take ", "; fetch ", ": save the model itself"
_LEAST = 6
"""Layers from which on the usual three are three."""
_MASKS = "mask_embedding"
SKIPPED = ("t2d", "verifier_", "confidence_head.")
"""Beginnings of names of tensors for training alone, and of a head that a file carries without asking for it."""


class Kind(Protocol):
    """The contents of a kind's folder."""

    ARCHITECTURES: tuple[str, ...]
    """As `architectures` of config.json names it."""

    REFUSED: Mapping[str, str]
    """Relatives that are known and not served: the reason, by architecture."""

    def read_spec(self, fields: Fields) -> AnyDrafterSpec:
        """Read config.json; every key must be understood."""
        ...


class BlockKind(Kind, Protocol):
    """The contents of the folder of a kind that fills a block at once."""

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


class ChainKind(Kind, Protocol):
    """The contents of the folder of a kind that makes one token after another."""

    TABLES: tuple[str, ...]
    """Names of tables that its files may carry."""

    def entry_shapes(self, spec: ChainSpec) -> Shapes:
        """Return name and shape of the tensors in front of attention, which the target has too."""
        ...

    def shapes(self, spec: ChainSpec) -> Shapes:
        """Return those of every tensor but tables."""
        ...

    def own(self, checkpoint: IntegerSource) -> IntegerSource:
        """Return the tensors that are the drafter's, of a file that may hold others."""
        ...

    def read_parts(
        self, spec: ChainSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device
    ) -> ChainParts:
        """Read all but tables."""
        ...


def _folders() -> Mapping[str, Kind]:
    """Every folder of this one by name; a new folder needs no entry elsewhere."""
    names = [one.name for one in iter_modules(__path__) if one.ispkg]
    return {name: cast(Kind, import_module(f"{__name__}.{name}")) for name in names}


KINDS: Mapping[str, Kind] = _folders()
ARCHITECTURES: Mapping[str, str] = {each: name for name, kind in KINDS.items() for each in kind.ARCHITECTURES}
"""Folders of kinds by what `architectures` of config.json names."""
_PROJECTORS = {each: name for name, kind in KINDS.items() for each in getattr(kind, "PROJECTORS", ())}
_REFUSED = {architecture: reason for kind in KINDS.values() for architecture, reason in kind.REFUSED.items()}


def block_kind(spec: DrafterSpec) -> BlockKind:
    """Return the folder of a spec's kind."""
    return cast(BlockKind, KINDS[spec.kind])


def chain_kind(spec: ChainSpec) -> ChainKind:
    """Return the folder of a spec's kind."""
    return cast(ChainKind, KINDS[spec.kind])


def read_any_spec(folder: Path, anchored: bool | None = None) -> AnyDrafterSpec:
    """Return the spec of a folder's drafter; `anchored` says whether the anchor's row predicts, whatever the file says.

    Raises:
        ModelError: the file is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    try:
        name, spec = _read_spec(folder)
    except ModelError as error:
        raise with_remedy(error) from error
    spec = replace(spec, kind=name, own_tables=(HEAD,) if spec.draft_vocab else ())
    return spec if anchored is None else _anchored(spec, anchored, folder)


def _read_spec(folder: Path) -> tuple[str, AnyDrafterSpec]:
    """Return a kind, and what it reads of config.json."""
    name = speculators.kind_of(folder)
    if name is None:
        architecture, fields = open_config(folder, ARCHITECTURES, _REFUSED, _REMEDY)
        peeked = open_config(folder, ARCHITECTURES)[1]  # what is read here must still be understood by the kind
        projector = peeked.nested("dflash_config").take("projector_type", (str, type(None)), default=None)
        name = _PROJECTORS.get(projector, ARCHITECTURES[architecture])
    elif name in KINDS:
        fields = getattr(KINDS[name], "translated", speculators.translated)(folder)
    else:
        told = f"{name!r} is not supported, only {sorted(KINDS)}{_REMEDY}"
        raise ModelError(f"{folder / CONFIG_FILE}: {speculators.TYPE}: {told}")
    return name, KINDS[name].read_spec(fields)


def with_remedy(error: ModelError, remedy: str = OTHERWISE) -> ModelError:
    """Return what is wrong with a drafter, and what to do about it where that is not said yet."""
    return error if any(told in str(error) for told in _REMEDIES) else ModelError(f"{error}{remedy}")


def _anchored(spec: AnyDrafterSpec, anchored: bool, folder: Path) -> DrafterSpec:
    if not isinstance(spec, DrafterSpec) or (anchored and spec.kind not in ANCHORED):
        told = f"sample_from_anchor cannot be said of {spec.kind}, only of {' and '.join(ANCHORED)}: take auto"
        raise ModelError(f"{folder / CONFIG_FILE}: {told}")
    return replace(spec, anchor_predicts=anchored)


def read_drafter_spec(folder: Path, anchored: bool | None = None) -> DrafterSpec:
    """Return that of a drafter that fills blocks.

    Raises:
        ModelError: as `read_any_spec`, or it makes chains.
    """
    spec = read_any_spec(folder, anchored)
    if not isinstance(spec, DrafterSpec):
        raise ModelError(f"{folder / CONFIG_FILE}: {spec.kind} makes chains, where a drafter of blocks is expected")
    return spec


def open_drafter(
    folder: Path, device: torch.device, random_weights: bool, anchored: bool | None = None
) -> tuple[DrafterSpec, IntegerSource]:
    """Return the spec of a drafter that fills blocks, and its tensors.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    return open_tensors(folder, read_drafter_spec(folder, anchored), device, random_weights)


def open_tensors(
    folder: Path, spec: AnySpec, device: torch.device, random_weights: bool
) -> tuple[AnySpec, IntegerSource]:
    """Return a drafter's spec, with the tables that its file carries, and its tensors.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    return compared(spec, RandomCheckpoint(folder, device) if random_weights else open_safetensors(folder))


def compared(spec: AnySpec, checkpoint: IntegerSource) -> tuple[AnySpec, IntegerSource]:
    """Return a spec with the tables that a file carries, and the tensors of the file that are the drafter's.

    Raises:
        ModelError: one is missing, or belongs to no part of the drafter.
    """
    tables: tuple[str, ...] = (EMBED, HEAD)
    if isinstance(spec, ChainSpec):
        checkpoint, tables = chain_kind(spec).own(checkpoint), chain_kind(spec).TABLES
    refuse_masks(checkpoint.folder, checkpoint.names)
    carried = (name for name in tables if name in checkpoint.names)
    spec = replace(spec, own_tables=tuple(dict.fromkeys((*spec.own_tables, *carried))))
    if DRAFT_TO_TARGET in checkpoint.names and not spec.draft_vocab:
        spec = replace(spec, draft_vocab=spec.vocab_size)  # some makers write a map of the whole vocabulary
    checkpoint.refuse_other_than(checkpoint_shapes(spec), SKIPPED)
    return spec, checkpoint


def refuse_masks(folder: Path, names: Iterable[str]) -> None:
    """Refuse a drafter, by its files or tensors, whose masks are rows of their own and no token's.

    Raises:
        ModelError: it has such rows.
    """
    beside = (path.name for path in folder.iterdir() if path.is_file())
    for name in (*names, *beside):
        if name.startswith(_MASKS):
            raise ModelError(f"{folder}: {name}: masks with an embedding of their own are not supported{OTHERWISE}")


def taps_of(folder: Path, drafter: AnyDrafterSpec, layers: int) -> tuple[int, ...]:
    """Return the blocks of a target of so many layers that a drafter reads.

    A chain whose file names none reads those that EAGLE-3 reads of this depth.

    Raises:
        ModelError: there are no usual ones.
    """
    if drafter.target_layer_ids:
        return drafter.target_layer_ids
    if layers < _LEAST:
        raise ModelError(
            f"{folder}: it names no layers to read, and a target of {layers} has no usual ones{_FOR_ANOTHER}"
        )
    return 1, layers // 2 - 1, layers - 4


def check_pair(folder: Path, drafter: AnyDrafterSpec, target: ModelSpec) -> None:
    """Check that a drafter was made for a target.

    Raises:
        ModelError: it was made for another one.
    """
    layers = len(target.layers)
    if (most := max(taps_of(folder, drafter, layers))) >= layers:
        told = f"it reads layer {most}, the target has {layers}, counted from 0"
        raise ModelError(f"{folder}/config.json: {told}{_FOR_ANOTHER}")
    if isinstance(drafter, ChainSpec) and drafter.raw and most == layers - 1:
        told = "before the norm, which this target does not give: take another drafter, or n-gram drafts"
        raise ModelError(f"{folder}/config.json: it reads the last layer's stream {told}")
    for name, other in (("hidden_size", target.hidden_size), ("vocab_size", target.vocab_size),
                        ("num_target_layers", layers)):  # fmt: skip
        if getattr(drafter, name) != other and (name != "num_target_layers" or drafter.num_target_layers):
            told = f"{name}: {getattr(drafter, name)} differs from the target's {other}"
            raise ModelError(f"{folder}/config.json: {told}{_FOR_ANOTHER}")


def checkpoint_shapes(spec: AnyDrafterSpec) -> Shapes:
    """Return name and shape of every tensor of a checkpoint."""
    if isinstance(spec, ChainSpec):
        return chain_kind(spec).shapes(spec) | table_shapes(spec)
    assert isinstance(spec, DrafterSpec), "a kind fills blocks or makes chains"
    return drafter_shapes(spec) | own_shapes(spec)


def own_shapes(spec: DrafterSpec) -> Shapes:
    """Return those of its kind alone."""
    return block_kind(spec).head_shapes(spec)
