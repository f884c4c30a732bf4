"""Sources that leave the weights of products as their file has them, or as kernels take them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from services.common.kernels.linear.grouped.weight import GroupedWeight, rounded
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from services.common.kernels.linear.packed_weight import (
    Codes,
    PackedWeight,
    nearest_codes,
    rounded_to_eight,
    rounded_to_four,
)
from services.common.kernels.linear.weight import Weight
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import TensorSource
from services.common.model.files.random_weights import RandomCheckpoint
from services.common.model.files.weight_format import Shape
from services.common.model.files.widened import CUT, NOT_GROUPED, NOT_WHOLE, WidenedCheckpoint

EIGHT, _FOUR = 8, 4
"""Bits of codes."""


@runtime_checkable
class WeightSource(TensorSource, Protocol):
    """A source that keeps the weights of some products packed."""

    def read_weight(self, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
        """Return a weight that rows are multiplied by."""
        ...


def read_weight(source: TensorSource, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
    """Return a weight that rows are multiplied by, as its source keeps it."""
    if isinstance(source, WeightSource):
        return source.read_weight(name, shape, dtype)
    return source.read(name, shape, dtype)


def read_codes(source: TensorSource, name: str, shape: Shape, dtype: torch.dtype) -> Codes | None:
    """Return the codes of e4m3 of an expert's weight; None where its source keeps none, or has others."""
    return source.expert_codes(name, shape, dtype) if isinstance(source, CodedWeights) else None


class _Kept:
    """Gives all else as its source does."""

    def __init__(self, source: WidenedCheckpoint | RandomCheckpoint) -> None:
        self.folder, self.revision, self._source = source.folder, source.revision, source

    @property
    def names(self) -> frozenset[str]:
        """As the source."""
        return self._source.names

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """As the source."""
        self._source.refuse_other_than(names, skipped)

    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        """As the source."""
        return self._source.read(name, shape, dtype)


class WholeNumbers(_Kept):
    """Weights are whole numbers with a scale a line, for rows of eight bits; random ones are rounded to such."""

    def __init__(self, source: TensorSource) -> None:
        """Raises ModelError where the source has no whole numbers."""
        if not isinstance(source, WidenedCheckpoint | RandomCheckpoint):
            raise ModelError(f"{source.folder}: {NOT_WHOLE}")
        super().__init__(source)

    def read_weight(self, name: str, shape: Shape, dtype: torch.dtype) -> Int8Weight:
        """Return a weight as the whole numbers of the file.

        Raises:
            ModelError: it is not packed so.
        """
        if isinstance(self._source, RandomCheckpoint):
            return quantised(self._source.read(name, shape, dtype))
        return self._source.read_whole(name, shape, dtype)


class GroupedCodes(_Kept):
    """Weights are e4m3 codes with scales of blocks, for rows of such codes; random ones are rounded to them."""

    def __init__(self, source: TensorSource, whole: bool = False) -> None:
        """Weights have `whole` blocks alone where kernels multiply. Raises ModelError where the source has no codes."""
        if not isinstance(source, WidenedCheckpoint | RandomCheckpoint):
            raise ModelError(f"{source.folder}: {NOT_GROUPED}")
        super().__init__(source)
        self._whole = whole

    def read_weight(self, name: str, shape: Shape, dtype: torch.dtype) -> GroupedWeight:
        """Return a weight as the codes of the file.

        Raises:
            ModelError: it is not packed so.
        """
        if not isinstance(self._source, RandomCheckpoint):
            found = self._source.read_grouped(name, shape, dtype)
            if self._whole and not found.whole:
                raise ModelError(f"{self.folder}: {name} {CUT}: {shape}")
            return found
        weight = rounded(self._source.read(name, shape, dtype))
        if weight is None:
            raise ModelError(f"{self.folder}: {name} {NOT_GROUPED}")
        return weight


class CodedWeights(_Kept):
    """Weights are codes with scales that kernels widen, where the file has such; random ones are rounded to them."""

    def __init__(self, source: WidenedCheckpoint | RandomCheckpoint, bits: int = 8, beside: bool = False) -> None:
        """`bits` are those of random weights. With `beside` weights have their numbers too."""
        super().__init__(source)
        self._beside, self._bits = beside, bits
        self._round = rounded_to_four if bits == _FOUR else rounded_to_eight

    def read_weight(self, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
        """Return a weight as codes, or widened where kernels do not take it.

        Raises:
            ModelError: as the source does.
        """
        weight = self._read(name, shape, dtype)
        return replace(weight, beside=self._beside) if isinstance(weight, PackedWeight) else weight

    def expert_codes(self, name: str, shape: Shape, dtype: torch.dtype) -> Codes | None:
        """Return an expert's weight as the codes of the file, or those nearest to random numbers; None for others.

        Raises:
            ModelError: as the source does.
        """
        if self._bits != EIGHT:
            return None
        if isinstance(self._source, RandomCheckpoint):
            return nearest_codes(self._source.read(name, shape, dtype))
        return self._source.codes_of(name, shape)

    def _read(self, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
        if isinstance(self._source, RandomCheckpoint):
            numbers_FD = self._source.read(name, shape, dtype)
            weight = self._round(numbers_FD)
            return numbers_FD if weight is None else weight
        return self._source.read_codes(name, shape, dtype)
