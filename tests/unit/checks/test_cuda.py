"""`make check` compiles every file in CUDA C++: a missing semicolon in any of them is seen."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from services.common.kernels import nvrtc
from services.common.kernels.cuda import FOLDER, Source
from tests.checks.cuda import Program, headers, programs, refusal

FILES = sorted(path for path in FOLDER.rglob("*.cu*") if path.suffix in (".cu", ".cuh"))
NAMES = [str(path.relative_to(FOLDER)).removeprefix("include/") for path in FILES]


@cache
def sample() -> tuple[Program, ...]:
    return tuple(programs(full=False))


@cache
def including() -> dict[str, list[Program]]:
    """By file, the programs that have it, those with the fewest files first."""
    names = sorted(((program, program.source.headers()) for program in sample()), key=lambda one: len(one[1]))
    found: dict[str, list[Program]] = {}
    for program, files in names:
        for name in files:
            found.setdefault(name, []).append(program)
    return found


def test_the_files_are_found() -> None:
    assert {path.parent.name for path in FILES} > {"include", "skinny", "persistent", "hopper", "rounds", "chunks"}


def test_each_is_in_a_program_that_is_compiled() -> None:
    assert set(NAMES) - including().keys() == set()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """By default every third file, and all of them with --full."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", NAMES[:: 1 if metafunc.config.getoption("full") else 3])


def test_a_file_without_its_last_semicolon_is_refused(name: str) -> None:
    """By one at least: the compiler reads what a template does only where a program makes one."""
    for program in including()[name]:
        files = program.source.headers()
        files[name] = without_last_semicolon(files[name])
        try:
            nvrtc.compiled(program.source.text, program.kernel, "compute_90a", files)
        except nvrtc.CompileError as refusal:
            assert "error" in str(refusal)
            return
    pytest.fail("every program compiles without it")


def without_last_semicolon(text: str) -> str:
    """What ends assembly may lack its semicolon; where there is nothing else, a brace is missing."""
    ends = [*re.finditer(r'^[^"/\n]*(;) *(?://.*)?$', text, re.MULTILINE)]
    last = (ends or [*re.finditer(r"(})$", text, re.MULTILINE)])[-1]
    return text[: last.start(1)] + text[last.end(1) :]


def test_no_two_structures_have_one_name() -> None:
    """So an editor finds the one that is meant."""
    found = [
        name
        for path in FILES
        for name in set(re.findall(r"^struct (?:alignas\(\d+\) )?(\w+)", path.read_text(), re.MULTILINE))
    ]
    assert [name for name, count in Counter(found).items() if count > 1] == []


def test_each_header_is_compiled_alone() -> None:
    assert {program.kernel for program in headers(sample())} == {name for name in NAMES if name.endswith(".cuh")}


def test_a_refusal_names_the_kernel_and_what_is_wrong() -> None:
    source = Source("linear/skinny/product.cu", including()["linear/skinny/product.cu"][0].source.build + "int x = 1\n")
    said = refusal((Program("product", "a size", source), nvrtc.HOPPER))
    assert said.startswith("product for sm_90a, a size\n")
    assert "build.cuh" in said or "arithmetic.cuh" in said


def test_a_source_that_compiles_becomes_machine_code() -> None:
    source = '#include "one.cuh"\nextern "C" __global__ void f(int* x) { *x = ONE; }'
    code = nvrtc.compiled(source, "f", headers={"one.cuh": "#define ONE 1\n"})
    assert code.startswith(b"\x7fELF")
