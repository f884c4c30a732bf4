"""What was compiled in CUDA C++ is kept beside Triton's kernels, so the next process does not compile it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from services.common.kernels import cuda, cuda_program, nvrtc
from services.common.kernels.nvrtc import CompileError


class Compiler:
    """Stands in for the compiler: counts what it compiles, and refuses sources that say so."""

    def __init__(self) -> None:
        self.told, self.count = "13.0", 0

    def version(self) -> str:
        """Its version."""
        return self.told

    def compiled(self, source: str, name: str, headers: Mapping[str, str]) -> bytes:
        """Machine code of a kind; refuses what is no program."""
        self.count += 1
        build = headers[cuda.BUILD].splitlines()[-1]
        if build == "broken":
            raise CompileError(f"{name} does not compile")
        return f"code of {build}".encode()


def source(build: str) -> cuda.Source:
    """A kernel that is built for something."""
    return cuda.Source("linear/skinny/product.cu", build)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """One that is installed, with an empty folder of kernels."""
    one = Compiler()
    monkeypatch.setattr(nvrtc, "version", one.version)
    monkeypatch.setattr(nvrtc, "compiled", one.compiled)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    return one


def test_a_source_is_compiled_once(compiler: Compiler) -> None:
    first = cuda_program._compiled(source("source"), "kernel")
    assert cuda_program._compiled(source("source"), "kernel") == first == b"code of source"
    assert compiler.count == 1


def test_another_source_or_another_compiler_is_not_what_was_kept(compiler: Compiler) -> None:
    cuda_program._compiled(source("source"), "kernel")
    assert cuda_program._compiled(source("other"), "kernel") == b"code of other"
    compiler.told = "13.1"
    cuda_program._compiled(source("source"), "kernel")
    assert compiler.count == 3


def test_what_includes_another_header_is_not_what_was_kept(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_program._compiled(source("source"), "kernel")
    read = cuda.read
    monkeypatch.setattr(cuda, "read", lambda name: "// other\n" if name == "tma.cuh" else read(name))
    cuda_program._compiled(source("source"), "kernel")
    assert compiler.count == 2


def test_what_does_not_compile_is_told_and_not_kept(compiler: Compiler) -> None:
    for _ in range(2):
        with pytest.raises(CompileError, match="kernel does not compile"):
            cuda_program._compiled(source("broken"), "kernel")
    assert compiler.count == 2


@pytest.mark.parametrize("refused", ["__init__", "put"])
def test_a_folder_that_cannot_be_written_keeps_nothing(
    refused: str, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError("read-only")

    monkeypatch.setattr(f"triton.runtime.cache.FileCacheManager.{refused}", refuse)
    for _ in range(2):
        assert cuda_program._compiled(source("source"), "kernel") == b"code of source"
    assert compiler.count == 2
