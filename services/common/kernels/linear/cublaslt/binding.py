"""The copy of cuBLASLt that torch has loaded, called by ctypes."""

import ctypes
from ctypes import byref, c_void_p
from functools import cached_property
from pathlib import Path
from typing import Any

from services.common.kernels.linear.cublaslt import header

_MAPS = Path("/proc/self/maps")
_NAME = "libcublasLt.so"


class CublasLtError(RuntimeError):
    """A call of cuBLASLt failed; the message names the function and its status."""

    def __init__(self, function: str, status: int, name: str) -> None:
        super().__init__(f"{function}: {name} ({status})")
        self.status = status


class Library:
    """Functions of the library; a status that is not success is an error."""

    def __init__(self, functions: Any) -> None:
        """`functions` are attributes by the names of the header, such as those of a `ctypes.CDLL`."""
        self._functions = functions

    @cached_property
    def version(self) -> int:
        """Major, minor and patch as one number: 130100 is 13.1.0."""
        return int(self._functions.cublasLtGetVersion())

    @cached_property
    def handle(self) -> c_void_p:
        """A context on the device that is current at the first use, kept until the process ends.

        Raises:
            CublasLtError: there is no such device.
        """
        handle = c_void_p()
        self.call("cublasLtCreate", byref(handle))
        return handle

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            CublasLtError: the status is not success.
        """
        status = getattr(self._functions, function)(*arguments)
        if status != header.CUBLAS_STATUS_SUCCESS:
            raise CublasLtError(function, status, self._functions.cublasLtGetStatusName(status).decode())


def opened(path: str) -> Library:
    """Return the library in a file; one that this process has loaded already is not loaded twice."""
    functions = ctypes.CDLL(path)
    for name, arguments in header.FUNCTIONS.items():
        getattr(functions, name).argtypes = arguments
    for name, (result, arguments) in header.OTHER_FUNCTIONS.items():
        getattr(functions, name).restype, getattr(functions, name).argtypes = result, arguments
    return Library(functions)


def loaded_library(maps: Path = _MAPS) -> Library | None:
    """Return the library that this process has loaded; None where torch brings none, as without a GPU."""
    for line in maps.read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) > 5 and Path(fields[5]).name.startswith(_NAME):
            return opened(fields[5])
    return None
