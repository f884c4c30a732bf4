"""A checkpoint whose file has other names for tensors than the common ones."""

from collections.abc import Iterable

import torch
from torch import Tensor

from services.common.kernels.linear.weight import Weight
from services.common.model.files.checkpoint import TensorSource
from services.common.model.files.kept import read_weight

_COMMON = "model."


class Renamed:
    """Common names that begin with `model.` stand in the file with another beginning, `prefix`."""

    def __init__(self, source: TensorSource, prefix: str) -> None:
        self.folder, self.revision = source.folder, source.revision
        self._source, self._prefix = source, prefix

    @property
    def names(self) -> frozenset[str]:
        """Common names of all tensors; those of other parts of the file keep their own."""
        return frozenset(map(self._common, self._source.names))

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """As the source does; `skipped` are beginnings of the file's own names."""
        self._source.refuse_other_than(map(self._own, names), skipped)

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """As the source does."""
        return self._source.read(self._own(name), shape, dtype)

    def read_weight(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Weight:
        """As the source does."""
        return read_weight(self._source, self._own(name), shape, dtype)

    def _own(self, name: str) -> str:
        return self._prefix + name.removeprefix(_COMMON) if name.startswith(_COMMON) else name

    def _common(self, name: str) -> str:
        return _COMMON + name.removeprefix(self._prefix) if name.startswith(self._prefix) else name
