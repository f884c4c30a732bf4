"""A checkpoint whose weights are packed, widened one by one when they are read.

Which weights are packed is told by the tensors: a file's lists of modules that are left alone have names of their
library's modules, which are not always those of its tensors.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from services.common.kernels.linear.grouped.weight import GroupedWeight, grouped
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.packed_weight import Codes, packed
from services.common.kernels.linear.weight import Weight
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import Checkpoint, is_finite
from services.common.model.files.weight_format import (
    SCALES,
    CodedFormat,
    Format,
    FormatError,
    Shape,
    TensorPart,
    WholeFormat,
)

_LOG = logging.getLogger(__name__)
NOT_WHOLE = (
    "has no whole numbers with a scale a line, which activations of eight bits need: "
    "take a file of compressed-tensors whose format is int-quantized (names end in .w8a8)"
)
NOT_GROUPED = (
    "has no codes of FP8 with scales of 128 x 128, which activations of FP8 need: "
    "take a file that is so (names end in -FP8)"
)
CUT = "has lines or inputs that are no multiple of 128, which a GPU multiplies no rows of FP8 by"
_WEIGHT, _BIAS = ".weight", ".bias"


class WidenedCheckpoint:
    """Gives plain weights by their usual names."""

    def __init__(self, source: Checkpoint, weight_format: Format) -> None:
        self.folder, self.revision, self.format = source.folder, source.revision, weight_format
        self._source, source.told = source, weight_format.summary
        self._packed = frozenset(filter(None, map(self._prefix, source.names)))

    def tell(self, elements: int, dtype: torch.dtype) -> None:
        """Log, before they are read, what the weights take in the files and what their `elements` numbers will take."""
        told = {
            "format": self.format.summary,
            "file_bytes": self._source.nbytes,
            "dtype": str(dtype).removeprefix("torch."),
            "bytes": dtype.itemsize * elements,
        }
        _LOG.info("weights are widened", extra=told)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all tensors, with one `weight` for those that hold a packed one; with experts there are many."""
        weights = {f"{prefix}{_WEIGHT}" for prefix in self._packed}
        parts = {part for prefix in self._packed for part in self._held(prefix)}
        return (self._source.names - parts) | weights

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """As the source does, with the tensors that hold packed weights in place of these."""
        own = set(names)
        packed = {name for name in own if name.endswith(_WEIGHT) and name.removesuffix(_WEIGHT) in self._packed}
        prefixes = [name.removesuffix(_WEIGHT) for name in packed]
        parts = {part for prefix in prefixes for part in self._held(prefix)}
        self._source.refuse_other_than((own - packed) | parts | self._zero_biases(prefixes, own), skipped)

    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Return one tensor as `dtype`, a packed weight by way of bfloat16; without numbers where the source has none.

        Raises:
            ModelError: as the source does; or the tensors of a packed weight do not fit together.
        """
        prefix = name.removesuffix(_WEIGHT)
        if prefix not in self._packed or not name.endswith(_WEIGHT):
            return self._source.read(name, shape, dtype)
        if len(shape) != 2:
            raise ModelError(f"{self.folder}: {prefix} is packed, but only matrices may be, and its shape is {shape}")
        try:
            parts = self._read_parts(prefix, self.format.parts(prefix, shape))
            if any(part.is_meta for part in parts.values()):
                return torch.empty(shape, dtype=dtype, device="meta")
            value = self.format.widened(prefix, shape, parts).to(dtype)
        except ModelError as error:
            place = f"{self.folder}: " if isinstance(error, FormatError) else ""
            raise ModelError(f"{place}{error}; the configuration says {self.format.summary}") from error
        if not is_finite(value):
            raise ModelError(f"{self.folder}: {prefix} holds NaN, infinity or a number beyond the range of {dtype}")
        return value

    def read_whole(self, name: str, shape: Shape, dtype: torch.dtype) -> Int8Weight:
        """Return a weight as the whole numbers of the file, for numbers of `dtype`.

        Raises:
            ModelError: it is not packed so.
        """
        prefix = name.removesuffix(_WEIGHT)
        if prefix in self._packed and isinstance(self.format, WholeFormat):
            parts = self._read_parts(prefix, self.format.parts(prefix, shape))
            found = self.format.whole(prefix, shape, parts)
            if found is not None:
                return Int8Weight(*found, dtype)
        raise ModelError(f"{self.folder}: {name} {NOT_WHOLE}")

    def read_grouped(self, name: str, shape: Shape, dtype: torch.dtype) -> GroupedWeight:
        """Return a weight as the codes and scales of the file, for numbers of `dtype`.

        Raises:
            ModelError: it is not packed so, or holds what is no number.
        """
        found = self.codes_of(name, shape)
        weight = None if found is None else grouped(found, dtype)
        if weight is not None:
            return weight
        raise ModelError(f"{self.folder}: {name} {NOT_GROUPED}")

    def read_codes(self, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
        """Return a weight as the codes and scales of the file, or as `read` does where kernels do not take it.

        Raises:
            ModelError: as `read`.
        """
        found = self.codes_of(name, shape)
        weight = None if found is None else packed(found, dtype)
        return self.read(name, shape, dtype) if weight is None else weight

    def codes_of(self, name: str, shape: Shape) -> Codes | None:
        """Return the codes and scales of a matrix; None where the file has none, or they hold what is no number.

        Raises:
            ModelError: as `read`.
        """
        prefix = name.removesuffix(_WEIGHT)
        if prefix not in self._packed or not isinstance(self.format, CodedFormat) or len(shape) != 2:
            return None
        found = self.format.codes(prefix, shape, self._read_parts(prefix, self.format.parts(prefix, shape)))
        return found if found is not None and _are_numbers(found) else None

    def read_integers(self, name: str, shape: Shape) -> Tensor:
        """As the source does."""
        return self._source.read_integers(name, shape)

    def _read_parts(self, prefix: str, wanted: Mapping[str, TensorPart]) -> Mapping[str, Tensor]:
        """Return the tensors of a weight by their ends; those that are optional may be missing."""
        held = self._held(prefix)
        parts = {
            end: self._source.stored(f"{prefix}.{end}", part.shape, part.dtypes)
            for end, part in wanted.items()
            if not part.optional or f"{prefix}.{end}" in held
        }
        for name in sorted(held - {f"{prefix}.{end}" for end in (*wanted, *self.format.idle)}):
            raise FormatError(f"{name} stands beside a weight that has none by the configuration; fetch both again")
        for end, part in parts.items():
            if part.dtype in SCALES and not part.is_meta and not is_finite(part):
                raise ModelError(
                    f"{self.folder}: {prefix} holds NaN, infinity or the like in its {end}; fetch it again"
                )
        return parts

    def _prefix(self, name: str) -> str:
        """Return the weight that a tensor holds a part of; empty if it is none or the file's plain weight."""
        prefix, _, end = name.rpartition(".")
        return prefix if end in self.format.ends - self.format.idle and end != "weight" else ""

    def _held(self, prefix: str) -> set[str]:
        return {f"{prefix}.{end}" for end in self.format.ends} & self._source.names

    def _zero_biases(self, prefixes: Iterable[str], asked: set[str]) -> set[str]:
        """Biases that nothing asks for and that are all zeros: some writers of GPTQ gave every weight one."""
        biases = {f"{prefix}{_BIAS}" for prefix in prefixes} & self._source.names
        return {name for name in biases - asked if self._source.holds_zeros(name)}


def _are_numbers(codes: Codes) -> bool:
    """Whether no code and no scale is NaN or infinity."""
    eight = codes.zero_FG is None
    return is_finite(codes.scale_FG) and not (eight and bool((codes.codes_FD.view(torch.uint8) & 127 == 127).any()))
