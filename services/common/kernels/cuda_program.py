"""Kernels in CUDA C++: compiled for the GPU at hand at first use, and launched with attributes that torch has not."""

import ctypes
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.kernels import ahead, nvrtc
from services.common.kernels.cuda import Source

_HOPPER = (9, 0)
_log = logging.getLogger(__name__)
_BFLOAT16, _SWIZZLE_128B, _PROMOTE_128B, _PROMOTE_256B = 9, 3, 2, 3
_MAX_DYNAMIC_SHARED, _SHARED_PERCENT, STREAM_SERIALIZATION = 8, 9, 6
_MAP_BYTES, _MAP_ALIGNMENT, _MAP_COLUMNS = 128, 64, 64
_ALIGNED_BYTES = 16


class DriverError(RuntimeError):
    """A call of the driver failed; the message names the function and the error."""


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`."""

    _fields_ = (("id", c_int), ("pad", c_char * 4), ("value", c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", c_uint),
    )


class TensorMap:
    """Boxes of a matrix [rows, columns] in bfloat16, 64 numbers wide, swizzled over 128 bytes."""

    _promoted = _PROMOTE_256B
    """What L2 reads from memory at once."""

    def __init__(self, matrix: Tensor, box_rows: int) -> None:
        """What lies outside the matrix is loaded as zero. Raises DriverError where the driver takes no such matrix."""
        (rows, columns), stride = matrix.shape, matrix.stride(0)
        self._encode(matrix, (columns, rows), (stride,), (_MAP_COLUMNS, box_rows))

    @staticmethod
    def takes(matrix: Tensor) -> bool:
        """Whether TMA reads such a matrix."""
        numbers = matrix.stride(0) * matrix.element_size(), matrix.data_ptr()
        return matrix.stride(1) == 1 and all(number % _ALIGNED_BYTES == 0 for number in numbers)

    def _encode(self, matrix: Tensor, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> None:
        """Describe it by sizes, strides and box of each dimension, the inmost first, whose stride is one."""
        self._memory = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        rank, size = len(sizes), matrix.element_size()
        call(
            "cuTensorMapEncodeTiled", c_void_p(self.address), c_int(_BFLOAT16), c_uint32(rank),
            c_void_p(matrix.data_ptr()), (c_uint64 * rank)(*sizes),
            (c_uint64 * (rank - 1))(*(stride * size for stride in strides)), (c_uint32 * rank)(*box),
            (c_uint32 * rank)(*[1] * rank), c_int(0), c_int(_SWIZZLE_128B), c_int(self._promoted), c_int(0),
        )  # fmt: skip


class LoneBoxes(TensorMap):
    """Boxes whose neighbours nobody reads soon."""

    _promoted = _PROMOTE_128B


class InterleavedHalves(TensorMap):
    """Boxes of a matrix that take eight rows of its first half beside the same eight of its second, in turn."""

    def __init__(self, matrix: Tensor, box_rows: int) -> None:
        """A box has half as many rows of each half. Raises DriverError where the driver takes no such matrix."""
        (rows, columns), stride = matrix.shape, matrix.stride(0)
        assert rows % 16 == 0 and box_rows % 16 == 0, "eight rows of each half"
        self._encode(
            matrix, (columns, 8, 2, rows // 16), (stride, rows // 2 * stride, 8 * stride),
            (_MAP_COLUMNS, 8, 2, box_rows // 16),
        )  # fmt: skip


class DeepBoxes(TensorMap):
    """Boxes of a matrix that are some 64s of columns deep: all rows of one 64 lie before those of the next."""

    def __init__(self, matrix: Tensor, box_rows: int, depth: int) -> None:
        """Columns are 64s, `depth` of them in a box. Raises DriverError where the driver takes no such matrix."""
        (rows, columns), stride = matrix.shape, matrix.stride(0)
        self._encode(
            matrix, (_MAP_COLUMNS, rows, columns // _MAP_COLUMNS), (stride, _MAP_COLUMNS),
            (_MAP_COLUMNS, box_rows, depth),
        )  # fmt: skip


Argument = TensorMap | Tensor | None | int | float


class CudaProgram:
    """The kernel `name` of a source, for the current GPU, an H100 or H200."""

    def __init__(self, source: Source, name: str, threads: int, shared_bytes: int) -> None:
        """Compiles it.

        Raises:
            CompileError: the compiler refuses it.
            DriverError: the GPU refuses it.
        """
        self._name, self._threads, self._shared_bytes = name, threads, shared_bytes
        self._module, self._function, self._image = c_void_p(), c_void_p(), b""
        compiled = partial(_compiled, source, name)
        self._coming = ahead.begun(self, compiled)
        if self._coming is None:
            self._load(compiled())

    def finish(self) -> None:
        """Wait for what is compiled ahead, and load it; raises what a program that is compiled at once raises."""
        assert self._coming is not None, "it was compiled at once"
        self._load(self._coming.result())

    def _load(self, image: bytes) -> None:
        torch.cuda.current_stream()  # torch's context is the current one from here on
        self._image = image
        call("cuModuleLoadData", byref(self._module), c_char_p(image))
        call("cuModuleGetFunction", byref(self._function), self._module, c_char_p(self._name.encode()))
        call("cuFuncSetAttribute", self._function, c_int(_MAX_DYNAMIC_SHARED), c_int(self._shared_bytes))

    def launch(self, grid: tuple[int, int], *arguments: Argument, early: bool = True) -> None:
        """Enqueue it on torch's stream; it may start while the kernel before it drains, if it is `early`.

        Raises:
            DriverError: the driver refuses it.
        """
        if not ahead.launches():
            return
        held = [_held(argument) for argument in arguments]
        values = (c_void_p * len(held))(*(address for address, _ in held))
        attribute = LaunchAttribute(id=STREAM_SERIALIZATION)
        attribute.value[0] = early
        config = LaunchConfig(
            grid=(c_uint * 3)(*grid, 1), block=(c_uint * 3)(self._threads, 1, 1), shared_bytes=self._shared_bytes,
            stream=torch.cuda.current_stream().cuda_stream, attributes=ctypes.pointer(attribute), count=1,
        )  # fmt: skip
        call("cuLaunchKernelEx", byref(config), self._function, values, None)


def compiles(device: torch.device, otherwise: str, *programs: Callable[[], CudaProgram]) -> bool:
    """Whether a GPU is an H100 or H200 and has all programs; `otherwise` is what the log says where one is refused."""
    if torch.cuda.get_device_capability(device) != _HOPPER:
        return False
    try:
        for program in programs:
            program()
    except (RuntimeError, ImportError, OSError) as error:
        _log.warning("%s: %s", otherwise, error)
        return False
    return True


def want_shared_memory(kernel: Any) -> None:
    """Prefer that multiprocessors have as much shared memory as they can, where a kernel of Triton runs from now on.

    It was launched just now; nothing is asked of one that is only compiled.

    Raises:
        DriverError: there is no such kernel.
    """
    if ahead.launches():
        call("cuFuncSetAttribute", c_void_p(kernel.function), c_int(_SHARED_PERCENT), c_int(100))


def _held(argument: Argument) -> tuple[int, object]:
    """Return the address of an argument's value, and what keeps it alive."""
    if isinstance(argument, TensorMap):
        return argument.address, argument
    value: c_void_p | c_int | ctypes.c_float
    if argument is None or isinstance(argument, Tensor):
        value = c_void_p(None if argument is None else argument.data_ptr())
    else:
        value = c_int(argument) if isinstance(argument, int) else ctypes.c_float(argument)
    return ctypes.addressof(value), value


def _compiled(source: Source, name: str) -> bytes:
    """Return the machine code of a source: compiled, or what an earlier process kept beside Triton's kernels."""
    from triton.runtime.cache import get_cache_manager

    headers = source.headers()
    parts = [part for item in sorted(headers.items()) for part in item]
    told = "\0".join([source.text, *parts, nvrtc.HOPPER, nvrtc.version()])
    key, file = sha256(told.encode()).hexdigest(), f"{name}.cubin"
    # A folder that cannot be read or written costs the next start its time, and nothing else.
    with suppress(OSError):
        if path := get_cache_manager(key).get_file(file):
            return Path(path).read_bytes()
    image = nvrtc.compiled(source.text, name, headers=headers)
    with suppress(OSError):
        get_cache_manager(key).put(image, file)
    return image


def call(function: str, *arguments: object) -> None:
    """Call a function of the driver that returns a status.

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


assert ctypes.sizeof(LaunchConfig) == 56 and ctypes.sizeof(LaunchAttribute) == 72 and ctypes.sizeof(c_size_t) == 8
