"""The functions of CUDA's driver that the kernel needs, called by ctypes: torch launches no kernel with attributes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from pathlib import Path

from services.common.kernels.cuda_program import (
    STREAM_SERIALIZATION,
    DriverError,
    LaunchAttribute,
    LaunchConfig,
    TensorMap,
    call,
)

__all__ = ["DriverError", "Kernel", "TensorMap"]

_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
_CLUSTER_DIMENSION = 4


class Kernel:
    """A loaded kernel with its grid, ready to be launched; the context of torch is current."""

    def __init__(self, cubin: Path, *, grid: tuple[int, int], threads: int, shared_bytes: int, cluster: int) -> None:
        """Raises DriverError where the GPU cannot run it."""
        self._module, self._function = c_void_p(), c_void_p()
        call("cuModuleLoad", byref(self._module), c_char_p(str(cubin).encode()))
        call("cuModuleGetFunction", byref(self._function), self._module, c_char_p(b"product"))
        for attribute, value in ((_MAX_DYNAMIC_SHARED, shared_bytes), (_NON_PORTABLE_CLUSTER, 1)):
            call("cuFuncSetAttribute", self._function, c_int(attribute), c_int(value))
        self._grid, self._threads, self._shared_bytes, self._cluster = grid, threads, shared_bytes, cluster

    def launch(self, arguments: tuple[int, int, int, int, int], stream: int, *, overlapped: bool) -> None:
        """Enqueue it with addresses of two tensor maps and of the result, outputs and depth.

        An overlapped one starts while the kernel before it drains.

        Raises:
            DriverError: the driver refuses it.
        """
        x_map, weight_map, y, outputs, depth = arguments
        pointer, numbers = c_void_p(y), (c_int(outputs), c_int(depth))
        values = (c_void_p * 5)(
            x_map, weight_map, ctypes.addressof(pointer), *(ctypes.addressof(number) for number in numbers)
        )
        attribute = LaunchAttribute(id=STREAM_SERIALIZATION)
        attribute.value[0] = 1
        config = self._config(stream, attribute, int(overlapped))
        call("cuLaunchKernelEx", byref(config), self._function, values, None)

    def clusters_at_once(self) -> int:
        """Return how many clusters the GPU holds at a time.

        Raises:
            DriverError: none fits.
        """
        attribute = LaunchAttribute(id=_CLUSTER_DIMENSION)
        attribute.value[:3] = [self._cluster, 1, 1]
        config, found = self._config(0, attribute, 1), c_int()
        call("cuOccupancyMaxActiveClusters", byref(found), self._function, byref(config))
        return found.value

    def _config(self, stream: int, attribute: LaunchAttribute, count: int) -> LaunchConfig:
        return LaunchConfig(
            grid=(c_uint * 3)(*self._grid, 1), block=(c_uint * 3)(self._threads, 1, 1),
            shared_bytes=self._shared_bytes, stream=stream, attributes=ctypes.pointer(attribute), count=count,
        )  # fmt: skip
