"""What an arena holds and where; device-independent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

ArenaKind = Literal["memfd", "cuda"]
PAGE_BYTES = 4096
_ALIGNMENT: dict[ArenaKind, int] = {"memfd": PAGE_BYTES, "cuda": 1 << 16}
"""Who maps a GPU's memory reads tensors that begin on 64 KiB as its own; those on 4 KiB took up to half longer."""
ArenaSpec = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One contiguous tensor; `dtype` as torch names it without the module, `offset` in bytes, page-aligned."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

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
    """One segment and its tensors."""

    kind: ArenaKind
    nbytes: int
    tensors: tuple[TensorEntry, ...]

    def check(self) -> None:
        """Refuse a layout that does not fit its own segment: it came over a wire.

        Raises:
            ValueError: a tensor is unaligned, of negative size, overlaps another or passes the end.
        """
        end = 0
        for entry in sorted(self.tensors, key=lambda entry: entry.offset):
            if entry.offset % PAGE_BYTES or entry.offset < end or any(size < 0 for size in entry.shape):
                raise ValueError(f"tensor {entry.name}: bad place {entry.offset} or shape {entry.shape}")
            end = entry.offset + entry.nbytes
            if end > self.nbytes:
                raise ValueError(f"tensor {entry.name}: ends at {end}, past the segment's {self.nbytes} bytes")
        if len({entry.name for entry in self.tensors}) != len(self.tensors):
            raise ValueError("two tensors share a name")


class Arena(Protocol):
    """Named tensors over one shared segment; they stay valid until `close`."""

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


def plan_layout(kind: ArenaKind, spec: ArenaSpec) -> Layout:
    """Place tensors one after the other on boundaries that suit who maps them."""
    entries: list[TensorEntry] = []
    offset, alignment = 0, _ALIGNMENT[kind]
    for name, (shape, dtype) in spec.items():
        entry = TensorEntry(name, str(dtype).removeprefix("torch."), tuple(shape), offset)
        entries.append(entry)
        offset += -(-entry.nbytes // alignment) * alignment
    return Layout(kind, max(offset, alignment), tuple(entries))
