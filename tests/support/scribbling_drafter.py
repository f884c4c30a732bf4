"""A drafter that maps all it is given and writes random bytes wherever it can, before every answer."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from services.common.pair.attach import FLAGS
from services.common.pair.side_socket import fetch_descriptors
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.support.fakes_drafter import FakeDrafter

if TYPE_CHECKING:
    from services.common.pair.arena.cuda import CudaArena

_PUNCH_HOLE = 0x03
"""FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE."""
_ANY_ROUND = 1 << 62


class ScribblingDrafter(FakeDrafter):
    """Counts the segments that it can write and those that it cannot; `scribbles` is how often it wrote them all."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.open = self.sealed = self.scribbles = 0
        self._random = random.Random(seed)
        self._writers: list[Callable[[], None]] = []
        self._mapped: list[CudaArena] = []
        self._writing = threading.Lock()
        super().__init__(folder)

    def Attach(self, request: pb.AttachRequest, context: object) -> pb.AttachResponse:
        arena = request.arena
        if arena.side_socket:
            fetched = fetch_descriptors(arena.side_socket, request.generation, request.nonce, len(arena.segments))
            fetched.connection.close()
            for descriptor in fetched.descriptors:
                self._take_file(descriptor)
        else:
            self._take_gpu(arena)
        return super().Attach(request, context)  # type: ignore[arg-type]

    def answer(self, request: pb.PaceRequest) -> list[pb.PaceResponse]:
        with self._writing:
            for write in self._writers:
                write()
        self.scribbles += 1
        return super().answer(request)

    def stop(self) -> None:
        super().stop()
        with self._writing:
            self._writers.clear()
        while self._mapped:
            self._mapped.pop().close()

    def _take_file(self, descriptor: int) -> None:
        """By a map, or by any call that changes a file's bytes."""
        size = os.fstat(descriptor).st_size
        try:
            mapped = mmap.mmap(descriptor, size)
        except PermissionError:
            self.sealed += 1
            assert not _changed_otherwise(descriptor, size)
            return

        def write() -> None:
            mapped[:] = self._random.randbytes(size)

        self.open += 1
        self._writers.append(write)

    def _take_gpu(self, arena: pb.ArenaLayout) -> None:
        """All of the segment, whatever lies in it; flags are then met for any round, so that no time is lost."""
        from services.common.pair.arena.cuda import CudaArena  # needs a GPU
        from services.common.pair.arena.layout import Layout, TensorEntry

        (segment,), (flags,) = arena.segments, [each for each in arena.tensors if each.name == FLAGS]
        whole = Layout("cuda", (segment.size,), (TensorEntry("all", "uint8", (segment.size,), 0),))
        self._mapped.append(CudaArena.map(whole, segment.cuda_ipc, arena.gpu_uuid))
        bytes_N = self._mapped[-1]["all"]
        words_N = bytes_N[flags.offset :][: 8 * flags.shape[0]].view(torch.int64)

        def write() -> None:
            bytes_N.random_()
            words_N.fill_(_ANY_ROUND)
            torch.cuda.synchronize()

        write()  # a first kernel takes a driver its time
        self.open += 1
        self._writers.append(write)


def _changed_otherwise(descriptor: int, size: int) -> bool:
    """Whether a write, a hole or another size is let through."""
    libc = ctypes.CDLL(None)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    tries: list[Callable[[], object]] = [
        lambda: os.pwrite(descriptor, b"x", 0),
        lambda: os.ftruncate(descriptor, size - 1),
        lambda: os.ftruncate(descriptor, size + 1),
    ]
    return libc.fallocate(descriptor, _PUNCH_HOLE, 0, size) == 0 or any(_passes(each) for each in tries)


def _passes(call: Callable[[], object]) -> bool:
    try:
        call()
    except PermissionError:
        return False
    return True
