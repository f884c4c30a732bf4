"""A source whose weights are whole numbers with a scale a line, for rows that are rounded to eight bits."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from services.common.kernels.linear.int8_weight import Int8Weight, Weight, quantised
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import TensorSource
from services.common.model.files.random_weights import RandomCheckpoint
from services.common.model.files.weight_format import Shape
from services.common.model.files.widened import NOT_WHOLE, WidenedCheckpoint


@runtime_checkable
class WeightSource(TensorSource, Protocol):
    """A source that keeps the weights of some products as its file has them."""

    def read_weight(self, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
        """Return a weight that rows are multiplied by."""
        ...


def read_weight(source: TensorSource, name: str, shape: Shape, dtype: torch.dtype) -> Weight:
    """Return a weight that rows are multiplied by, as its source keeps it."""
    if isinstance(source, WeightSource):
        return source.read_weight(name, shape, dtype)
    return source.read(name, shape, dtype)


class WholeNumbers:
    """Gives all else as `source` does; random weights are rounded."""

    def __init__(self, source: TensorSource) -> None:
        """Raises ModelError where the source has no whole numbers."""
        if not isinstance(source, WidenedCheckpoint | RandomCheckpoint):
            raise ModelError(f"{source.folder}: {NOT_WHOLE}")
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

    def read_weight(self, name: str, shape: Shape, dtype: torch.dtype) -> Int8Weight:
        """Return a weight as the whole numbers of the file.

        Raises:
            ModelError: it is not packed so.
        """
        if isinstance(self._source, RandomCheckpoint):
            return quantised(self._source.read(name, shape, dtype))
        return self._source.read_whole(name, shape, dtype)
