"""NVRTC, CUDA's compiler as a library, which needs no GPU and no toolkit; the package is `nvidia-cuda-nvrtc`."""

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from importlib import metadata
from pathlib import Path

HOPPER = "sm_90a"
_PACKAGE, _LIBRARY, _BUILTINS = "nvidia-cuda-nvrtc", "libnvrtc.so.13", "libnvrtc-builtins.so.*"


class CompileError(RuntimeError):
    """The compiler refuses a source; the message is what it says."""


@cache
def version() -> str:
    """Return the compiler's version, such as 13.0.

    Raises:
        OSError: this machine has none.
    """
    major, minor = c_int(), c_int()
    _checked(_library().nvrtcVersion(byref(major), byref(minor)))
    return f"{major.value}.{minor.value}"


def compiled(source: str, name: str, gpu: str = HOPPER, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the machine code of a source for a kind of GPU; `headers` are what it may include, by name.

    Raises:
        CompileError: it does not compile.
        OSError: this machine has no compiler.
    """
    return _compile(source, name, gpu, headers or {}, ())[0]


def report(source: str, name: str, headers: Mapping[str, str]) -> str:
    """Return what the assembler says of a source: registers, and bytes that it had to spill.

    Raises:
        CompileError: it does not compile.
        OSError: this machine has no compiler.
    """
    return _compile(source, name, HOPPER, headers, ("--ptxas-options=-v",))[1]


def _compile(
    source: str, name: str, gpu: str, headers: Mapping[str, str], options: tuple[str, ...]
) -> tuple[bytes, str]:
    program, count = c_void_p(), len(headers)
    texts = (c_char_p * count)(*(text.encode() for text in headers.values()))
    names = (c_char_p * count)(*(each.encode() for each in headers))
    _checked(_library().nvrtcCreateProgram(byref(program), source.encode(), f"{name}.cu".encode(), count, texts, names))
    told = [f"--gpu-architecture={gpu}", "--std=c++17", *options]
    try:
        if _library().nvrtcCompileProgram(program, len(told), (c_char_p * len(told))(*map(str.encode, told))):
            raise CompileError(f"{name} for {gpu}: {_text(program, 'ProgramLog')}")
        return _bytes(program, "CUBIN"), _text(program, "ProgramLog")
    finally:
        _library().nvrtcDestroyProgram(byref(program))


def _text(program: c_void_p, kind: str) -> str:
    return _bytes(program, kind).rstrip(b"\0").decode(errors="replace").strip()


def _bytes(program: c_void_p, kind: str) -> bytes:
    size = c_size_t()
    _checked(getattr(_library(), f"nvrtcGet{kind}Size")(program, byref(size)))
    found = ctypes.create_string_buffer(size.value)
    _checked(getattr(_library(), f"nvrtcGet{kind}")(program, found))
    return found.raw


def _checked(status: int) -> None:
    if status:
        _library().nvrtcGetErrorString.restype = c_char_p
        raise CompileError(_library().nvrtcGetErrorString(status).decode())


@cache
def _library() -> ctypes.CDLL:
    """Load the package's library, or the machine's; it finds its own part only where that was loaded before."""
    folder = _folder()
    if folder is None:
        return ctypes.CDLL(_LIBRARY)
    for part in folder.glob(_BUILTINS):
        ctypes.CDLL(str(part))
    return ctypes.CDLL(str(folder / _LIBRARY))


def _folder() -> Path | None:
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).parent for file in files if file.name == _LIBRARY), None)
