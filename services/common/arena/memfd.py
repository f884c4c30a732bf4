"""The arena of CPU pairs: an anonymous sealed memory file, passed by descriptor, gone with its last holder."""

import fcntl
import mmap
import os
import warnings
from collections.abc import Collection
from typing import Self

import torch
from torch import Tensor

from services.common.arena.layout import ArenaSpec, Layout, TensorEntry, plan_layout

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class MemfdArena:
    """A memory file and the tensors in it. The owner creates it; others map the descriptor they received."""

    def __init__(self, layout: Layout, descriptor: int, maps: list[mmap.mmap], tensors: dict[str, Tensor]) -> None:
        self.descriptor = descriptor
        self._layout = layout
        self._maps = maps
        self._tensors = tensors

    @classmethod
    def create(cls, spec: ArenaSpec) -> Self:
        """Allocate zeroed tensors; nobody can change the file's size from then on."""
        layout = plan_layout("memfd", spec)
        descriptor = os.memfd_create("paceline-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, layout.nbytes)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            shared = mmap.mmap(descriptor, layout.nbytes)
        except OSError:
            os.close(descriptor)
            raise
        return cls(layout, descriptor, [shared], {entry.name: _view(shared, entry, 0) for entry in layout.tensors})

    @classmethod
    def map(cls, layout: Layout, descriptor: int, writable: Collection[str] = ()) -> Self:
        """Map a received descriptor, which the arena then owns; only `writable` tensors can be written.

        Raises:
            ValueError: the layout is malformed or the file is not the layout's size or not sealed.
        """
        layout.check()
        if os.fstat(descriptor).st_size != layout.nbytes:
            raise ValueError(f"the arena holds {os.fstat(descriptor).st_size} bytes, its layout says {layout.nbytes}")
        if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise ValueError("the arena is not sealed against shrinking")
        whole = mmap.mmap(descriptor, layout.nbytes, prot=mmap.PROT_READ)
        maps, tensors = [whole], {}
        for entry in layout.tensors:
            if entry.name in writable:
                own = mmap.mmap(descriptor, max(entry.nbytes, 1), offset=entry.offset)
                maps.append(own)
                tensors[entry.name] = _view(own, entry, entry.offset)
            else:
                tensors[entry.name] = _view(whole, entry, 0)
        return cls(layout, descriptor, maps, tensors)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; raises KeyError when the arena has none of that name."""
        return self._tensors[name]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def layout(self) -> Layout:
        """Return what a drafter needs besides the descriptor."""
        return self._layout

    def close(self) -> None:
        """Close the descriptor and drop the tensors; the memory goes with the last view of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self._tensors.clear()
        self._maps.clear()


def _view(shared: mmap.mmap, entry: TensorEntry, base: int) -> Tensor:
    count = entry.nbytes // entry.torch_dtype.itemsize
    if count == 0:
        return torch.empty(entry.shape, dtype=entry.torch_dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(shared, dtype=entry.torch_dtype, count=count, offset=entry.offset - base)
    return flat.view(entry.shape)
