"""A part of a checkpoint: its tensors whose names begin alike."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from services.common.model.files.checkpoint import IntegerSource


class PartOf:
    """The tensors of a source whose names begin with `start`, under their own names."""

    folder: Path
    revision: str

    def __init__(self, source: IntegerSource, start: str) -> None:
        self.folder, self.revision = source.folder, source.revision
        self._source, self._start = source, start

    @property
    def names(self) -> frozenset[str]:
        """Names of the part's tensors."""
        return frozenset(name for name in self._source.names if name.startswith(self._start))

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """As the source does, for the part alone."""
        beside = self._source.names - self.names
        self._source.refuse_other_than(beside.union(names), skipped)

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """As the source does."""
        return self._source.read(name, shape, dtype)

    def read_integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As the source does."""
        return self._source.read_integers(name, shape)
