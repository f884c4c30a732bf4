"""Whether a checkpoint's configuration and tensors make a model that is served, read from headers alone."""

import json
from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

from services.common.model.drafters import (
    ARCHITECTURES,
    LAYOUTS,
    check_pair,
    checkpoint_shapes,
    compared,
    read_any_spec,
    refuse_masks,
    speculators,
    with_remedy,
)
from services.common.model.drafters.spec import DRAFT_TO_TARGET, AnyDrafterSpec
from services.common.model.drafters.vocabulary import read_vocabulary
from services.common.model.families import FAMILIES, open_family
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import (
    INDEX_FILE,
    Checkpoint,
    IntegerSource,
    instead_of,
    read_files,
    tensor_files,
)
from services.common.model.files.formats import open_safetensors
from services.common.model.files.gguf import GgufCheckpoint
from services.common.model.files.manifest import verify_manifest
from services.common.model.files.weight_format import CodedFormat, WholeFormat
from services.common.model.files.weight_formats import BESIDE, folder_format
from services.common.model.files.widened import CUT, NOT_GROUPED, NOT_WHOLE
from services.common.model.spec import Experts, ModelSpec
from services.common.model.states.states import CODED_HEAD_STEP
from services.common.model.weights.expert_memory import held
from services.common.model.weights.weights import elements, keeps_packed, model_shapes, table_elements
from services.common.preflight.source import Source

DESCRIPTIONS = ("config.json", "generation_config.json", *BESIDE)
_KINDS = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip
_NOWHERE = torch.device("meta")
_INCOMPLETE = ": download its folder again, or take another drafter, or n-gram drafts, which need no checkpoint"
_ALIKE = (torch.Tensor.exp, torch.Tensor.neg, torch.Tensor.__neg__)
"""What gives a tensor of the same shape."""
_FP8_BITS, _BLOCK = 8, (128, 128)
"""Of codes that rows of FP8 are multiplied by, and the lines and inputs that share a scale."""
MOST_DIGESTED_BYTES = 64 << 20
"""Of a file whose digest is compared before anything starts: a tenth of a second."""


class Headers(Checkpoint):
    """The tensors of a folder by their headers: a tensor has its shape and type, and is on no device.

    Of shards that are still at the hub, the index tells the names alone.
    """

    def __init__(self, folder: Path, remote: bool) -> None:
        """Takes a folder that may lack its shards when it is `remote`."""
        self.folder, self.revision = folder, ""
        self._files = tensor_files(folder, held=not remote)

    def stored(self, name: str, shape: tuple[int, ...], dtypes: frozenset[torch.dtype]) -> Tensor:
        """Return one tensor without its numbers; one that is still at the hub is taken to be right."""
        path = self._files.get(name)
        if path is not None and not path.is_file():
            return torch.empty(shape, dtype=next(iter(dtypes)), device=_NOWHERE)
        return super().stored(name, shape, dtypes)

    def read_integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor with its numbers, where the file is here: of integers there are few."""
        told, path = super().read_integers(name, shape), self._files[name]
        if not path.is_file():
            return told
        with safe_open(path, framework="pt") as file:
            held: Tensor = file.get_tensor(name)
        return held.to(torch.int64)

    def holds_zeros(self, name: str) -> bool:
        """Numbers are not read: the loader looks."""
        return True

    def _load(self, name: str) -> Tensor:
        path = self._files.get(name)
        if path is None:
            raise ModelError(f"{self.folder}: tensor {name} is missing{instead_of(name, self._files, self.told)}")
        kind, shape = tensor_headers(path)[name]
        if kind not in _KINDS:
            raise ModelError(f"{path}: tensor {name} has dtype {kind}, which is not known")
        return torch.empty(shape, dtype=_KINDS[kind], device=_NOWHERE)


class GgufHead(GgufCheckpoint):
    """The tensors of a GGUF file by its head."""

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return one tensor without its numbers."""
        self.stored(name, shape)
        return torch.empty(shape, dtype=dtype, device=_NOWHERE)


class ShapesAlone(TorchFunctionMode):
    """Does by shapes what a loader does with tensors without numbers.

    For these operations torch would import its compiler, which takes as long as torch itself.
    """

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Stands for torch.cat, torch.stack and functions of single numbers, where tensors are nowhere."""
        given = kwargs or {}
        if func in _ALIKE and args[0].is_meta:
            return torch.empty_like(args[0])
        if func not in (torch.cat, torch.stack) or not all(one.is_meta for one in args[0]):
            return func(*args, **given)
        first, *others = args[0]
        axis = args[1] if len(args) > 1 else given.get("dim", 0)
        shape = [*first.shape]
        if func is torch.stack:
            shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1 + len(others))
        else:
            shape[axis] += sum(one.shape[axis] for one in others)
        return first.new_empty(shape)


@lru_cache(maxsize=256)
def tensor_headers(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of every tensor of a safetensors file that the library has accepted."""
    with path.open("rb") as file:
        table = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: (one["dtype"], tuple(one["shape"])) for name, one in table.items() if name != "__metadata__"}


def target_spec(source: Source) -> ModelSpec:
    """Return what config.json says of the model.

    Raises:
        ModelError, FolderError: it is missing, malformed, inconsistent, or asks for what is not implemented.
    """
    return open_family(source.folder(*DESCRIPTIONS))[1]


def drafter_spec(source: Source, target: ModelSpec | None, anchored: str = "auto") -> AnyDrafterSpec:
    """Return what config.json says of a drafter, and check that it was made for a target, if one is known.

    `anchored` is a word of `LAYOUTS`.

    Raises:
        ModelError, FolderError: as `target_spec`, or it was made for another target.
    """
    folder = source.folder(*DESCRIPTIONS)
    spec = read_any_spec(folder, LAYOUTS.get(anchored))
    if target is not None:
        check_pair(folder, spec, target)
    return spec


def drafts_only(source: Source) -> str:
    """Return the architecture of a checkpoint that only drafts, or its type there; empty for every other one."""
    named = _named(source, ARCHITECTURES.keys() - FAMILIES.keys())
    try:
        return named or speculators.kind_of(source.folder(*DESCRIPTIONS)) or ""
    except ModelError:
        return ""  # What reads it all says what is wrong.


def generates(source: Source) -> str:
    """Return the architecture of a model that holds no drafter; empty for every other checkpoint."""
    if speculators.kind_of(source.folder(*DESCRIPTIONS)) is not None:
        return ""
    return _named(source, FAMILIES.keys() - ARCHITECTURES.keys())


def _named(source: Source, architectures: Set[str]) -> str:
    try:
        told = json.loads((source.folder(*DESCRIPTIONS) / "config.json").read_text(encoding="utf-8"))
        return next((name for name in told["architectures"] if name in architectures), "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # What reads it all says what is wrong.


def rounding_problem(source: Source, activations: str, weightless: bool, on_gpu: bool = False) -> tuple[str, str]:
    """What keeps rows of int8 or fp8 from being multiplied by a file's weights, and the remedy; empty for nothing.

    Raises:
        ModelError, FolderError: config.json is missing or malformed.
    """
    folder, without = source.folder(*DESCRIPTIONS), "leave it out"
    spec = open_family(folder)[1]
    if not all(map(keeps_packed, spec.layers)):
        return f"is for dense models without gates alone, which {source.name} is not", without
    found = None if weightless else folder_format(folder)
    if activations == "int8":
        if weightless or (isinstance(found, WholeFormat) and found.all_whole):
            return "", ""
        return f"{source.name} {NOT_WHOLE.partition(':')[0]}", f"take a w8a8 file of compressed-tensors, or {without}"
    if not weightless and not (isinstance(found, CodedFormat) and found.block == _BLOCK):
        return f"{source.name} {NOT_GROUPED.partition(',')[0]}", f"take the model's -FP8 file, or {without}"
    if not (weightless or on_gpu):
        return "", ""
    cut = next((name for name, shape in model_shapes(spec).items() if _is_cut(name, shape)), "")
    remedy = without if weightless else f"serve it on a CPU, or {without}"
    return (f"{source.name}: {cut} {CUT}", remedy) if cut else ("", "")


def coding_problem(source: Source) -> str:
    """What keeps kernels of a GPU from keys and values in eight bits; empty for nothing.

    Raises:
        ModelError, FolderError: config.json is missing or malformed.
    """
    odd = next((own.head_dim for own in target_spec(source).groups if own.head_dim % CODED_HEAD_STEP), 0)
    return f"on a GPU heads must be a multiple of {CODED_HEAD_STEP}, and some are {odd}" if odd else ""


def residency_problem(source: Source, expert_bytes: int, itemsize: int | None) -> str:
    """What keeps a GPU from holding experts of so many bytes; empty for nothing, or where the type is refused anyway.

    Raises:
        ModelError, FolderError: config.json is missing or malformed.
    """
    spec = target_spec(source)
    try:
        if itemsize is not None:
            held(spec, expert_bytes, itemsize)
    except ModelError as error:
        return str(error).removeprefix("expert_bytes: ")
    return ""


def _is_cut(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a product's last block has fewer lines or inputs than others."""
    return ".layers." in name and len(shape) == 2 and any(size % _BLOCK[0] for size in shape)


def check_target(source: Source) -> None:
    """Compare the tensors that there are with those that the architecture asks for.

    Raises:
        ModelError, FolderError: one is missing, foreign, of another shape, or not floating point.
    """
    headers = _headers(source) if source.described is None else GgufHead(source.described)
    if headers is not None:
        family, spec = open_family(source.folder(*DESCRIPTIONS))
        with ShapesAlone():
            family.read_weights(spec, headers, torch.bfloat16, _NOWHERE)


def check_drafter(source: Source, spec: AnyDrafterSpec) -> None:
    """The same of a drafter.

    Raises:
        ModelError, FolderError: as `check_target`.
    """
    try:
        headers = _headers(source)
        if headers is None:
            return
        spec, own = compared(spec, headers)
        refuse_masks(headers.folder, source.files)  # of a hub's files some are never fetched
        for name, shape in checkpoint_shapes(spec).items():
            if name != DRAFT_TO_TARGET:
                own.read(name, shape, torch.bfloat16)
        read_vocabulary(spec, own, _NOWHERE)
    except ModelError as error:
        raise with_remedy(error, _INCOMPLETE) from error


def check_manifest(source: Source) -> None:
    """Compare the files with the folder's own manifest, if it has one; large ones when they are loaded.

    Raises:
        ModelError: one differs, is missing or is not listed.
    """
    if source.described is None and not source.remote:
        folder = source.folder()
        verify_manifest(folder, read_files(folder, tensor_files(folder)), MOST_DIGESTED_BYTES)


def _headers(source: Source) -> IntegerSource | None:
    """The headers that are here; None for a GGUF file, and for a hub id whose one file is not here."""
    if source.described is not None:
        return None
    if source.remote and INDEX_FILE not in source.files:
        return None
    folder = source.folder(INDEX_FILE, *DESCRIPTIONS)
    return open_safetensors(folder, lambda where: Headers(where, source.remote))


def has_codes_of_experts(source: Source) -> bool:
    """Whether a file's weights are codes of FP8, which a GPU may keep of experts.

    Raises:
        ModelError, FolderError: config.json is missing or malformed.
    """
    if source.described is not None:
        return False
    found = folder_format(source.folder(*DESCRIPTIONS))
    return isinstance(found, CodedFormat) and found.code_bits == _FP8_BITS


def numbers(target: ModelSpec, drafter: AnyDrafterSpec | None) -> tuple[int, int, int, int]:
    """Return how many numbers the target's weights, all of the drafter's, embedding and head, and experts have."""
    drafted = 0 if drafter is None else elements(checkpoint_shapes(drafter))
    mixtures = [layer.ffn for layer in target.layers if isinstance(layer.ffn, Experts)]
    experts = sum(3 * target.hidden_size * own.inner * own.count for own in mixtures)
    return elements(model_shapes(target)), drafted, table_elements(target), experts
