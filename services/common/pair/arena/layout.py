"""The tensors of an arena and their places, on any device."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

ArenaKind = Literal["memfd", "cuda"]
PAGE_BYTES = 4096
_ALIGNMENT: dict[ArenaKind, int] = {"memfd": PAGE_BYTES, "cuda": 1 << 16}
"""A process that maps a GPU's memory reads tensors that begin on 64 KiB as fast as its own; on 4 KiB it took up to half
longer.
"""
_WHOLE: dict[ArenaKind, int] = {"memfd": PAGE_BYTES, "cuda": 2 << 20}
"""A CUDA IPC handle opens whole pages of 2 MiB: a smaller segment would lie in one with memory that is not shared."""
ArenaSpec = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One contiguous tensor; `dtype` as torch names it without the module, `offset` in its segment, page-aligned."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    segment: int = 0

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type itself.

        Raises:
            ValueError: torch has no such type.
        """
        found = getattr(torch, self.dtype, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(f"tensor {self.name}: unknown dtype {self.dtype!r}")
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * self.torch_dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """Segments, each of so many bytes, and the tensors in them."""

    kind: ArenaKind
    segments: tuple[int, ...]
    tensors: tuple[TensorEntry, ...]

    def check(self) -> None:
        """Refuse a layout that does not fit its own segments: it came over a wire.

        Raises:
            ValueError: a tensor is in no segment, unaligned, of negative size, overlaps another or passes the end.
        """
        ends = [0] * len(self.segments)
        for entry in sorted(self.tensors, key=lambda entry: entry.offset):
            if not 0 <= entry.segment < len(ends):
                raise ValueError(f"tensor {entry.name}: there is no segment {entry.segment}")
            if entry.offset % PAGE_BYTES or entry.offset < ends[entry.segment] or any(size < 0 for size in entry.shape):
                raise ValueError(f"tensor {entry.name}: bad place {entry.offset} or shape {entry.shape}")
            end = ends[entry.segment] = entry.offset + entry.nbytes
            if end > self.segments[entry.segment]:
                size = self.segments[entry.segment]
                raise ValueError(f"tensor {entry.name}: ends at {end}, past the segment's {size} bytes")
        if len({entry.name for entry in self.tensors}) != len(self.tensors):
            raise ValueError("two tensors share a name")


class Arena(Protocol):
    """Named tensors over shared segments; they stay valid until `close`."""

    @property
    def sealed(self) -> bool:
        """Whether other processes can write only the tensors that are meant for them."""
        ...

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; raises KeyError when the arena has none of that name."""
        ...

    def __getitem__(self, name: str) -> Tensor: ...

    def __contains__(self, name: str) -> bool: ...

    def layout(self) -> Layout:
        """Return what the other side needs besides the handle."""
        ...

    def close(self) -> None:
        """Release the mapping; tensors must not be used afterwards."""
        ...


def plan_layout(kind: ArenaKind, spec: ArenaSpec, apart: Collection[str] = ()) -> Layout:
    """Place tensors one after the other, aligned for the processes that map them, those `apart` in a second segment."""
    entries: list[TensorEntry] = []
    alignment, ends = _ALIGNMENT[kind], [0, 0] if apart else [0]
    for name, (shape, dtype) in spec.items():
        segment = int(name in apart)
        entry = TensorEntry(name, str(dtype).removeprefix("torch."), tuple(shape), ends[segment], segment)
        entries.append(entry)
        ends[segment] += _whole(entry.nbytes, alignment)
    return Layout(kind, tuple(_whole(max(end, 1), _WHOLE[kind]) for end in ends), tuple(entries))


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit
