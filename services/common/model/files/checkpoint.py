"""Reads a checkpoint folder: sharded safetensors with an optional sha256 manifest. Everything read is checked."""

import hashlib
import json
import logging
import reprlib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from services.common.model.fields.errors import ModelError
from services.common.model.fields.generation import GENERATION_FILE
from services.common.model.fields.known_keys import TENSORS_IGNORED
from services.common.model.files.manifest import verify_manifest
from services.common.model.files.weight_format import FLOATS, INTEGERS, PARTS
from services.common.model.files.weight_formats import BESIDE
from services.common.serving.files import read_regular
from services.common.serving.hub import FolderError, local_folder
from services.common.serving.progress import WEIGHTS, Progress

_LOG = logging.getLogger(__name__)
CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
SUFFIX = ".safetensors"
SAMPLES, SAMPLE_BYTES = 128, 64
"""Tensors of a file of which some bytes count for its digest, at most, and how many bytes of each."""
_MOST_OPEN = 64
"""Files that are open at a time; one more closes the one that was opened first."""
_LONGEST_NAME = 255
"""Of a file, in a folder of a file system."""


def resolve_folder(name: str | Path) -> Path:
    """Return the folder of a local path, or of a hub id fetched by huggingface_hub when that is installed.

    Raises:
        ModelError: there is no such folder and the id cannot be fetched.
    """
    try:
        return local_folder(name)
    except FolderError as error:
        raise ModelError(str(error)) from error


class TensorSource(Protocol):
    """The source of a model's tensors."""

    folder: Path
    revision: str

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors."""
        ...

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """Refuse tensors that are missing, and those that no layer asks for unless their names begin as `skipped`."""
        ...

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return one tensor."""
        ...


class IntegerSource(TensorSource, Protocol):
    """One that has tensors of integers, too."""

    def read_integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return one tensor of integers, int64, on the CPU."""
        ...


class Checkpoint:
    """The tensors of one folder.

    `revision` identifies the contents: the digest of the manifest, else of the configuration, the tensor tables and
    some numbers of each file.

    Raises:
        ModelError: the manifest, the index or a shard is damaged or they disagree.
    """

    told = ""
    """How the configuration says that weights are packed; empty if it says nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[Path, Any] = {}
        self._files = tensor_files(folder)
        manifest = verify_manifest(folder, read_files(folder, self._files))
        self.revision = manifest or _describe_digest(folder, self._files.values())
        self._progress = Progress(WEIGHTS, self.nbytes)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all tensors; with experts there are tens of thousands."""
        return frozenset(self._files)

    @property
    def nbytes(self) -> int:
        """Bytes of the files that hold tensors."""
        return sum(path.stat().st_size for path in set(self._files.values()))

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """Refuse tensors that no layer asks for and tensors that are missing: the architecture is another one.

        Tensors that follow from config.json, and those whose names begin as `skipped`, are logged once and ignored.
        """
        expected = set(names)
        for name in sorted(expected - self._files.keys()):
            raise ModelError(f"{self.folder}: tensor {name} is missing{instead_of(name, self._files, self.told)}")
        foreign = self._files.keys() - expected
        parts = {start: [name for name in foreign if name.startswith(start)] for start in skipped}
        foreign = foreign.difference(*parts.values())
        unused = [name for name in foreign if name.endswith(TENSORS_IGNORED)]
        for name in sorted(foreign - set(unused)):
            more = _packed_part(name, self.told)
            raise ModelError(f"{self._files[name]}: tensor {name} is not part of this architecture{more}")
        unused += [f"{start}* ({len(names)} tensors)" for start, names in parts.items() if names]
        if unused:
            _LOG.info("%s: these tensors have no effect: %s", self.folder, ", ".join(sorted(unused)))

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return one tensor as `dtype`, on the CPU.

        Raises:
            ModelError: missing, of another shape, not floating point, not finite, or too large for `dtype`.
        """
        value = self.stored(name, shape, FLOATS)
        if value.is_meta:
            return value.to(dtype)
        if not is_finite(value):
            raise ModelError(f"{self._files[name]}: tensor {name} holds NaN or infinity; fetch it again")
        cast = value.to(dtype)
        if torch.finfo(dtype).max < torch.finfo(value.dtype).max and not is_finite(cast):
            raise ModelError(f"{self._files[name]}: tensor {name} holds a value beyond the range of {dtype}")
        return cast

    def stored(self, name: str, shape: tuple[int, ...], dtypes: frozenset[torch.dtype]) -> Tensor:
        """Return one tensor as it is in the file, of one of some types; a single number may have no shape.

        Raises:
            ModelError: missing, or of another shape or type.
        """
        value, path = self._load(name), self._files[name]
        if tuple(value.shape) != shape and not (value.ndim == 0 and shape == (1,)):
            raise ModelError(f"{path}: tensor {name} has shape {tuple(value.shape)}, expected {shape}")
        if value.dtype not in dtypes:
            raise ModelError(f"{path}: tensor {name} has dtype {value.dtype}, expected {_kinds(dtypes)}")
        return value.view(shape)

    def read_integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return one tensor of integers, int64, on the CPU.

        Raises:
            ModelError: missing, of another shape, or not of integers.
        """
        return self.stored(name, shape, INTEGERS).to(torch.int64)

    def holds_zeros(self, name: str) -> bool:
        """Whether all numbers of a tensor are zero."""
        return not bool(self._load(name).double().any())

    def _load(self, name: str) -> Tensor:
        path = self._files.get(name)
        if path is None:
            raise ModelError(f"{self.folder}: tensor {name} is missing{instead_of(name, self._files, self.told)}")
        try:
            value: Tensor = self._opened(path).get_tensor(name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise ModelError(f"{path}: tensor {name} cannot be read: {error}") from error
        self._progress.add(value.nbytes)
        return value

    def _opened(self, path: Path) -> Any:
        """A file of tensors, kept open: each opening reads the table of all its tensors, which may lie in any file."""
        found = self._open.get(path)
        if found is None:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open)))
            found = self._open[path] = safe_open(path, framework="pt")
        return found


_UNTOLD = "packed weights need quantization_config in config.json, or a file beside it, that says how they are packed"
_PARTS: Mapping[str, str] = {
    "input_scale": "scales of activations that were fixed beforehand have no place here: take a file with dynamic ones",
    **dict.fromkeys(
        ("k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale", "output_scale"),
        "scales of keys and values have no place here: take a file without",
    ),
}
"""What it means that a tensor, by the end of its name, is left over."""
_OF_STACKS = ("_proj_scale_inv", "_proj_scale", "_proj_scales", "_proj_blocks", "_proj_packed", "_proj_global_scale")
_STACKED = "experts in one tensor are read where they are plain: take a file that has a tensor for each expert"


def _packed_part(name: str, told: str) -> str:
    """Say why a tensor of a packed weight may be left over, of weights packed as was told; empty for others."""
    end = name.rpartition(".")[2]
    why = _PARTS.get(end) or (end in PARTS and (_says(told) or _UNTOLD)) or (end.endswith(_OF_STACKS) and _STACKED)
    return f": {why}" if why else ""


def _says(told: str) -> str:
    return f"the configuration says {told}" if told else ""


_JOINED = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj") | dict.fromkeys(
    ("gate_proj", "up_proj"), "gate_up_proj"
)
"""What engines save in one tensor, by its parts."""


def instead_of(name: str, there: Collection[str], told: str = "") -> str:
    """Say what stands in place of a tensor that is missing: a packed one, or the same name behind another word."""
    prefix = name.removesuffix("weight")
    parts = [part for part in PARTS if name != prefix and f"{prefix}{part}" in there]
    if parts:
        return f", and {prefix}{parts[0]} is there: fetch the file again" if told else f": {_UNTOLD}"
    holder, _, part = prefix.rstrip(".").rpartition(".")
    joined = f"{holder}.{_JOINED.get(part)}"
    if any(other.startswith(f"{joined}.") for other in there):
        return f", and {joined} is there: take a file that has its products apart"
    wrapped = next((one for one in sorted(there) if one.endswith(f".{name}")), "")
    return f", and {wrapped} is there: save the model itself, without what is wrapped around it" if wrapped else ""


def _kinds(dtypes: frozenset[torch.dtype]) -> str:
    """Return types for people, and what may be wrong when a tensor of codes stands where a plain one is read."""
    if dtypes == FLOATS:
        return "floating point: a packed weight needs its scales, and quantization_config in config.json"
    if dtypes == INTEGERS:
        return "integers"
    return " or ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def is_finite(value: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinity; looks at a part at a time.

    The least and the largest number tell it, for NaN is both: found in a fortieth of the time that a mask takes.
    """
    ends = (torch.stack(torch.aminmax(part)) for part in value.flatten().split(1 << 24) if len(part))
    return all(bool(part_2.isfinite().all()) for part_2 in ends)


def read_files(folder: Path, tensors: Mapping[str, Path]) -> list[str]:
    """Names of all files that are read of a folder, given that of each tensor."""
    return sorted({path.name for path in (*tensors.values(), *_descriptions(folder))})


def _descriptions(folder: Path) -> list[Path]:
    """The files that are read beside tensors."""
    others = (folder / name for name in (GENERATION_FILE, *BESIDE))
    return [folder / CONFIG_FILE, *(path for path in others if path.exists())]


def tensor_files(folder: Path, held: bool = True) -> dict[str, Path]:
    """Return the file of each tensor; when they are not yet `held`, the index alone says so.

    Raises:
        ModelError: index or a file is missing or damaged, or they disagree.
    """
    index = folder / INDEX_FILE
    if not index.exists():
        path = folder / SINGLE_FILE
        if not path.exists() and (shards := sorted(folder.glob("*-of-*.safetensors"))):
            raise ModelError(f"{index}: no such file, and {shards[0].name} is one of several; fetch the index too")
        return dict.fromkeys(_tensor_names(path), path)
    files = _indexed(index)
    if not held:
        return files
    inside = {path: _tensor_names(path) for path in sorted(set(files.values()))}
    for name, path in files.items():
        if name not in inside[path]:
            raise ModelError(f"{path}: tensor {name} is in {INDEX_FILE} but not in the file; fetch both again")
    for path, names in inside.items():
        for name in sorted(names - files.keys()):
            raise ModelError(f"{path}: tensor {name} is not in {INDEX_FILE}; fetch both again")
    return files


def _indexed(index: Path) -> dict[str, Path]:
    """Files by tensors, as an index has them; a path in it counts by its name alone."""
    try:
        told = json.loads(read_regular(index))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{index}: cannot be read: {error}; fetch it again") from error
    files = told.get("weight_map") if isinstance(told, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise ModelError(f"{index}: has no weight_map that names a file for each tensor; fetch it again")
    for name, file in files.items():
        if len(file) > _LONGEST_NAME or not file.endswith(SUFFIX) or not file.isprintable():
            told = f"{reprlib.repr(file)} for {reprlib.repr(name)}, which is no name of a *{SUFFIX} file"
            raise ModelError(f"{index}: names {told}; fetch it again")
    return {name: index.parent / Path(file).name for name, file in files.items()}


def _tensor_names(path: Path) -> frozenset[str]:
    if not path.is_file():
        raise ModelError(f"{path}: no such file; fetch it too")
    try:
        with safe_open(path, framework="pt") as file:
            return frozenset(file.keys())
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ModelError(f"{path}: is not a complete safetensors file: {error}; fetch it again") from error


def _describe_digest(folder: Path, files: Iterable[Path]) -> str:
    """The digest of what describes a folder, and of some numbers of each file: finetunes of a model differ in these."""
    digest = hashlib.sha256(b"".join(read_regular(path) for path in _descriptions(folder)))
    for path in sorted(set(files)):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            table = file.read(min(size, 1 << 28))
            digest.update(table)
            digest.update(str(path.stat().st_size).encode())
            ends = [one["data_offsets"] for name, one in sorted(json.loads(table).items()) if name != "__metadata__"]
            for first, last in ends[:: 1 + len(ends) // SAMPLES]:
                file.seek(8 + size + (first + last) // 2)
                digest.update(file.read(min(SAMPLE_BYTES, last - first)))
    return digest.hexdigest()
