"""The arena of CPU pairs: anonymous sealed memory files that are passed by descriptor.

Tensors that only the owner may write lie in a file that no other process can map for writing. A file ends with its last
holder.
"""

import fcntl
import mmap
import os
import warnings
from collections.abc import Collection, Sequence
from typing import Self

import torch
from torch import Tensor

from services.common.pair.arena.laid_out import LaidOut
from services.common.pair.arena.layout import ArenaSpec, Layout, TensorEntry, plan_layout

_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_NO_OTHER_WRITER = 0x10
"""F_SEAL_FUTURE_WRITE of Linux 5.1, for which Python has no name: only maps that exist can still write."""


class MemfdArena(LaidOut):
    """Memory files and the tensors in them. The owner creates it; others map the descriptors they received."""

    def __init__(
        self, layout: Layout, descriptors: Sequence[int], maps: list[mmap.mmap], tensors: dict[str, Tensor]
    ) -> None:
        super().__init__(layout, tensors)
        self.descriptors = tuple(descriptors)
        self._maps = maps

    @classmethod
    def create(cls, spec: ArenaSpec, others_write: Collection[str] = ()) -> Self:
        """Allocate zeroed tensors; only those of `others_write`, in a file of their own, can be written by others.

        Raises:
            OSError: the kernel has no memory files, or cannot seal them against writers.
        """
        layout = plan_layout("memfd", spec, others_write)
        descriptors: list[int] = []
        try:
            maps = []
            for segment, size in enumerate(layout.segments):
                descriptors.append(os.memfd_create("paceline-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
                maps.append(_sealed(descriptors[-1], size, others_write=segment > 0))
        except OSError:
            _close(descriptors)
            raise
        return cls(layout, descriptors, maps, _views(maps, layout))

    @classmethod
    def map(cls, layout: Layout, descriptors: Sequence[int], writable: Collection[str] = ()) -> Self:
        """Map received descriptors, one a segment, which the arena then owns; only `writable` tensors can be written.

        Raises:
            ValueError: the layout is malformed, a file is not of its size or not sealed, or a segment holds tensors
                of both kinds.
            OSError: what should be writable is sealed.
        """
        layout.check()
        for size, descriptor in zip(layout.segments, descriptors, strict=True):
            found = os.fstat(descriptor).st_size
            if found != size:
                raise ValueError(f"a segment of the arena holds {found} bytes, its layout says {size}")
            if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                raise ValueError("the arena is not sealed against shrinking")
        written = {entry.segment for entry in layout.tensors if entry.name in writable}
        if any(entry.segment in written and entry.name not in writable for entry in layout.tensors):
            raise ValueError("what is written and what is only read share a segment")
        maps = [
            mmap.mmap(descriptor, size, prot=mmap.PROT_READ | (mmap.PROT_WRITE if segment in written else 0))
            for segment, (descriptor, size) in enumerate(zip(descriptors, layout.segments, strict=True))
        ]
        return cls(layout, descriptors, maps, _views(maps, layout))

    @property
    def sealed(self) -> bool:
        """The kernel refuses other writers."""
        return True

    def close(self) -> None:
        """Close the descriptors and drop the tensors; the memory goes with the last view of it."""
        _close(self.descriptors)
        self.descriptors = ()
        self._tensors.clear()
        self._maps.clear()


def _sealed(descriptor: int, size: int, others_write: bool) -> mmap.mmap:
    """The owner's map of a file of fixed size, made before the seal that refuses every later map for writing."""
    os.ftruncate(descriptor, size)
    shared = mmap.mmap(descriptor, size)
    seals = _FIXED_SIZE | fcntl.F_SEAL_SEAL | (0 if others_write else _NO_OTHER_WRITER)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return shared


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _views(maps: Sequence[mmap.mmap], layout: Layout) -> dict[str, Tensor]:
    return {entry.name: _view(maps[entry.segment], entry) for entry in layout.tensors}


def _view(shared: mmap.mmap, entry: TensorEntry) -> Tensor:
    count = entry.nbytes // entry.torch_dtype.itemsize
    if count == 0:
        return torch.empty(entry.shape, dtype=entry.torch_dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(shared, dtype=entry.torch_dtype, count=count, offset=entry.offset)
    return flat.view(entry.shape)
