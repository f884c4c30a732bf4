"""What was compiled in CUDA C++ is kept beside Triton's kernels, so the next process does not compile it again."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from services.common.kernels import cuda_program
from services.common.kernels.cuda_program import DriverError


class Compiler(ModuleType):
    """Stands in for the compiler: counts what it compiles, and refuses sources that say so."""

    def __init__(self, version: tuple[int, int]) -> None:
        super().__init__("nvrtc")
        self.version, self.compiled = version, 0

    def getVersion(self) -> tuple[int, int]:
        """Its version."""
        return self.version

    def createProgram(self, source: str, *_: object) -> str:
        """Nothing but the source."""
        return source

    def compileProgram(self, program: str, _: object) -> None:
        """Refuses what is no program."""
        self.compiled += 1
        if program == "broken":
            raise RuntimeError("does not compile")

    def getCUBIN(self, program: str) -> bytes:
        """Machine code of a kind."""
        return f"code of {program}".encode()

    def getProgramLog(self, program: str) -> str:
        """What was wrong."""
        return f"log of {program}"

    def destroyProgram(self, program: str) -> None:
        """Nothing is held."""


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """One that is installed, with an empty folder of kernels."""
    one = Compiler((13, 0))
    cuda = ModuleType("cupy.cuda")
    cuda.nvrtc = one  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    return one


def test_a_source_is_compiled_once(compiler: Compiler) -> None:
    first = cuda_program._compiled("source", "kernel")
    assert cuda_program._compiled("source", "kernel") == first == b"code of source"
    assert compiler.compiled == 1


def test_another_source_or_another_compiler_is_not_what_was_kept(compiler: Compiler) -> None:
    cuda_program._compiled("source", "kernel")
    assert cuda_program._compiled("other", "kernel") == b"code of other"
    compiler.version = (13, 1)
    cuda_program._compiled("source", "kernel")
    assert compiler.compiled == 3


def test_what_does_not_compile_is_told_and_not_kept(compiler: Compiler) -> None:
    for _ in range(2):
        with pytest.raises(DriverError, match="kernel: does not compile: log of broken"):
            cuda_program._compiled("broken", "kernel")
    assert compiler.compiled == 2


@pytest.mark.parametrize("refused", ["__init__", "put"])
def test_a_folder_that_cannot_be_written_keeps_nothing(
    refused: str, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError("read-only")

    monkeypatch.setattr(f"triton.runtime.cache.FileCacheManager.{refused}", refuse)
    for _ in range(2):
        assert cuda_program._compiled("source", "kernel") == b"code of source"
    assert compiler.compiled == 2
