"""`make check` compiles every file in CUDA C++: a missing semicolon in any of them is seen."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from services.common import kernels
from services.common.kernels import nvrtc
from tests.checks.cuda import Program, programs, refusal

FOLDER = Path(kernels.__file__).parent
FILES = sorted(FOLDER.rglob("*.cu"))


@cache
def sample() -> list[Program]:
    return sorted(programs(full=False), key=lambda program: len(program.source))


def test_the_files_are_found() -> None:
    assert {path.parent.name for path in FILES} > {"cuda", "skinny", "persistent", "hopper", "rounds", "chunks"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_file_without_its_last_semicolon_is_refused(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = next((program for program in sample() if text in program.source), None)
    assert found, "no program has it"
    # What ends assembly may lack its semicolon; where there is nothing else, a brace is missing.
    ends = [*re.finditer(r'^[^"/\n]*(;) *(?://.*)?$', text, re.MULTILINE)] or [
        *re.finditer(r"^(})$", text, re.MULTILINE)
    ]
    broken = found.source.replace(text, text[: ends[-1].start(1)] + text[ends[-1].end(1) :])
    assert "error" in refusal((found._replace(source=broken), nvrtc.HOPPER))


def test_a_refusal_names_the_kernel_and_what_is_wrong() -> None:
    said = refusal((Program("product", "a size", 'extern "C" __global__ void product() { int x = 1 }'), nvrtc.HOPPER))
    assert said.startswith("product for sm_90a, a size\n") and "expected a" in said


def test_a_source_that_compiles_becomes_machine_code() -> None:
    code = nvrtc.compiled(
        '#include "one.cuh"\nextern "C" __global__ void f(int* x) { *x = ONE; }',
        "f",
        headers={"one.cuh": "#define ONE 1\n"},
    )
    assert code.startswith(b"\x7fELF")
