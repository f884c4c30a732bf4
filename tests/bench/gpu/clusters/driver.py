"""The functions of CUDA's driver that the kernel needs, called by ctypes: torch launches no kernel with attributes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

_BFLOAT16, _SWIZZLE_128B, _PROMOTE_256B = 9, 3, 3
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
_STREAM_SERIALIZATION, _CLUSTER_DIMENSION = 6, 4
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64


class DriverError(RuntimeError):
    """A call of the driver failed; the message names the function and the error."""


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`."""

    _fields_ = (("id", c_int), ("pad", c_char * 4), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    )


class TensorMap:
    """Boxes of a matrix [rows, columns] in bfloat16, 64 numbers deep, swizzled over 128 bytes."""

    def __init__(self, pointer: int, shape: tuple[int, int], box_rows: int) -> None:
        """Raises DriverError where the driver takes no such matrix; what lies outside it is loaded as zero."""
        self._memory = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        call(
            "cuTensorMapEncodeTiled", c_void_p(self.address), c_int(_BFLOAT16), c_uint32(2), c_void_p(pointer),
            (c_uint64 * 2)(*shape[::-1]), (c_uint64 * 1)(shape[1] * 2), (c_uint32 * 2)(64, box_rows),
            (c_uint32 * 2)(1, 1), c_int(0), c_int(_SWIZZLE_128B), c_int(_PROMOTE_256B), c_int(0),
        )  # fmt: skip


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
        attribute = _Attribute(id=_STREAM_SERIALIZATION)
        attribute.value[0] = 1
        config = self._config(stream, attribute, int(overlapped))
        call("cuLaunchKernelEx", byref(config), self._function, values, None)

    def clusters_at_once(self) -> int:
        """Return how many clusters the GPU holds at a time.

        Raises:
            DriverError: none fits.
        """
        attribute = _Attribute(id=_CLUSTER_DIMENSION)
        attribute.value[:3] = [self._cluster, 1, 1]
        config, found = self._config(0, attribute, 1), c_int()
        call("cuOccupancyMaxActiveClusters", byref(found), self._function, byref(config))
        return found.value

    def _config(self, stream: int, attribute: _Attribute, count: int) -> _Config:
        return _Config(
            grid=(c_uint * 3)(*self._grid, 1), block=(c_uint * 3)(self._threads, 1, 1),
            shared_bytes=self._shared_bytes, stream=stream, attributes=ctypes.pointer(attribute), count=count,
        )  # fmt: skip


def call(function: str, *arguments: Any) -> None:
    """Call a function that returns a status.

    Raises:
        DriverError: the status is not success.
    """
    status = getattr(_library(), function)(*arguments)
    if status:
        name = c_char_p()
        _library().cuGetErrorName(c_int(status), byref(name))
        raise DriverError(f"{function}: {(name.value or b'unknown').decode()} ({status})")


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


assert ctypes.sizeof(_Config) == 56 and ctypes.sizeof(_Attribute) == 72 and ctypes.sizeof(c_size_t) == 8
