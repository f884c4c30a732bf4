"""The arena of GPU pairs: one cudaMalloc segment, exported as a 64-byte CUDA IPC handle.

It is allocated outside torch's caching allocator: a handle covers a whole allocation, which must not be split or
reused. A process that maps it can write all of it, so it holds nothing that decides text.
"""

from typing import Any, Self

import cupy
import torch
import torch.utils.dlpack
from torch import Tensor

from services.common.pair.arena.laid_out import LaidOut
from services.common.pair.arena.layout import ArenaSpec, Layout, TensorEntry, plan_layout


class CudaArena(LaidOut):
    """Device memory and the tensors in it. The owner creates it; another process of the same GPU maps the handle."""

    def __init__(self, layout: Layout, pointer: int, device: int, owner: bool) -> None:
        super().__init__(layout, {entry.name: _view(pointer, entry, device) for entry in layout.tensors})
        self._pointer = pointer
        self._device = device
        self._owner = owner

    @classmethod
    def create(cls, spec: ArenaSpec, device: int = 0) -> Self:
        """Allocate zeroed tensors on a device."""
        layout = plan_layout("cuda", spec)
        with cupy.cuda.Device(device):
            (size,) = layout.segments
            pointer = cupy.cuda.runtime.malloc(size)
            cupy.cuda.runtime.memset(pointer, 0, size)
            cupy.cuda.runtime.deviceSynchronize()
        return cls(layout, pointer, device, owner=True)

    @classmethod
    def map(cls, layout: Layout, handle: bytes, gpu_uuid: str) -> Self:
        """Open another process's segment on the GPU of that UUID; the mapping can be written.

        Raises:
            ValueError: the layout is malformed or of several segments, or no visible GPU has that UUID.
        """
        layout.check()
        if len(layout.segments) != 1:
            raise ValueError(f"an arena on a GPU is one segment, this one is of {len(layout.segments)}")
        device = find_device(gpu_uuid)
        with cupy.cuda.Device(device):
            pointer = cupy.cuda.runtime.ipcOpenMemHandle(handle, cupy.cuda.runtime.cudaIpcMemLazyEnablePeerAccess)
        return cls(layout, pointer, device, owner=False)

    @property
    def handle(self) -> bytes:
        """The 64-byte handle of an owned segment."""
        assert self._owner, "only the owner exports a handle"
        with cupy.cuda.Device(self._device):
            return bytes(cupy.cuda.runtime.ipcGetMemHandle(self._pointer))

    @property
    def gpu_uuid(self) -> str:
        """UUID of the GPU that holds the segment."""
        return str(torch.cuda.get_device_properties(self._device).uuid)

    @property
    def sealed(self) -> bool:
        """False: a process that maps a GPU's memory can write it."""
        return False

    def close(self) -> None:
        """Free or unmap the segment; tensors must not be used afterwards."""
        self._tensors.clear()
        if not self._pointer:
            return
        runtime: Any = cupy.cuda.runtime
        with cupy.cuda.Device(self._device):
            runtime.deviceSynchronize()
            (runtime.free if self._owner else runtime.ipcCloseMemHandle)(self._pointer)
        self._pointer = 0


def find_device(gpu_uuid: str) -> int:
    """Return the index under which this process sees a GPU.

    Raises:
        ValueError: it does not see it.
    """
    for index in range(torch.cuda.device_count()):
        if str(torch.cuda.get_device_properties(index).uuid) == gpu_uuid:
            return index
    raise ValueError(f"no visible GPU has UUID {gpu_uuid}")


def _view(pointer: int, entry: TensorEntry, device: int) -> Tensor:
    memory = cupy.cuda.UnownedMemory(pointer + entry.offset, max(entry.nbytes, 1), None, device)
    raw = cupy.ndarray((entry.nbytes,), dtype=cupy.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
    flat: Tensor = torch.utils.dlpack.from_dlpack(raw)
    return flat.view(entry.torch_dtype).view(entry.shape)
