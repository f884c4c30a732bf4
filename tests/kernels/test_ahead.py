"""What steps launch is compiled before they are captured: nothing is launched meanwhile, and nothing is lost by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import torch
from triton import knobs
from triton.runtime import _async_compile
from triton.runtime.jit import JITFunction

from services.common.kernels import ahead, cuda, cuda_program
from services.common.kernels.ahead import compile_steps, compiled_ahead, kept
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.nvrtc import CompileError
from services.common.kernels.wait_flag import kernel as wait_flag

WAIT_S = 30.0


def source(name: str) -> cuda.Source:
    return cuda.Source(name, "")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The driver's calls, and a compiler that refuses what is broken."""
    called: list[str] = []

    def compiled(source: cuda.Source, name: str) -> bytes:
        if source.file == "broken":
            raise CompileError("it is broken")
        return source.file.encode()

    monkeypatch.setattr(cuda_program, "_compiled", compiled)
    monkeypatch.setattr(cuda_program, "call", lambda name, *_: called.append(name))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: None)
    yield called
    assert ahead.launches() and _async_compile.active_mode.get() is None


def test_programs_are_compiled_side_by_side_and_loaded_at_the_end(
    driver: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3)

    def compiled(source: cuda.Source, name: str) -> bytes:
        together.wait(WAIT_S)
        return b"code"

    monkeypatch.setattr(cuda_program, "_compiled", compiled)
    with compiled_ahead(3):
        programs = [CudaProgram(source(name), "kernel", 32, 0) for name in "abc"]
        for program in programs:
            program.launch((1, 1), 1)
        assert not driver, "nothing is loaded or launched"
    assert driver.count("cuModuleLoadData") == 3


def test_kernels_of_triton_are_compiled_and_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, bool]] = []

    def run(kernel: object, *args: object, grid: object, warmup: bool, **_: object) -> None:
        asked.append((args, warmup))

    monkeypatch.setattr(JITFunction, "run", run)
    kernel = JITFunction.__new__(JITFunction)
    with compiled_ahead(2):
        kernel[(1,)](7)
    kernel[(1,)](8)
    assert asked == [((7,), True), ((8,), False)]


def test_a_wait_for_a_flag_asks_nothing_of_a_kernel_that_is_not_there_yet(driver: list[str]) -> None:
    waiting = MagicMock()
    waiting.__getitem__.return_value.return_value.function = 42
    with patch.object(wait_flag, "_wait_kernel", waiting), patch.object(wait_flag, "INTERPRETED", False):
        with compiled_ahead(1):
            wait_flag.wait_flag(torch.zeros(16, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), 0, 1.0)
        assert not driver
        wait_flag.wait_flag(torch.zeros(16, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), 0, 1.0)
    assert driver == ["cuFuncSetAttribute"]


def test_operators_find_zeros_where_kernels_would_have_written() -> None:
    table_V = torch.arange(5.0)
    with compiled_ahead(1):
        at_N = table_V.new_empty(400, dtype=torch.int64)
        assert table_V.index_select(0, at_N).eq(0).all()
        assert torch.empty_like(at_N).eq(0).all() and torch.empty(400, dtype=torch.int32).eq(0).all()


def test_who_asks_whether_a_program_serves_asks_again_where_one_is_refused(driver: list[str]) -> None:
    """Ahead all are said to compile. What is refused is refused at its capture too, where others take its place."""
    built: list[str] = []

    @kept
    def program(name: str) -> CudaProgram:
        built.append(name)
        return CudaProgram(source(name), "kernel", 32, 0)

    with compiled_ahead(2):
        program("whole"), program("whole")
    program("whole")
    assert built == ["whole"], "what compiled is kept"
    with compiled_ahead(2):
        program("broken")
    with pytest.raises(CompileError):
        program("broken")
    assert built == ["whole", "broken", "broken"]


def test_a_step_that_fails_ends_no_start(driver: list[str], caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> None:
        CudaProgram(source("whole"), "kernel", 32, 0)
        raise RuntimeError("no such index")

    compile_steps([failing, partial(pytest.fail, "the pass is over")], 2)
    assert "kernels are compiled when they are captured" in caplog.text
    assert "cuModuleLoadData" in driver, "what was on its way is kept"


def test_what_launches_a_kernel_is_compiled_behind_it_in_the_same_thread() -> None:
    made: list[tuple[str, bool]] = []
    kernel = SimpleNamespace(src="source", metadata="metadata")

    def launcher(src: str, metadata: str) -> None:
        made.append((src, threading.current_thread() is threading.main_thread()))
        raise RuntimeError("no compiler for C")

    active = SimpleNamespace(launcher_cls=launcher)
    with patch("triton.runtime.driver.driver", SimpleNamespace(active=active)), ThreadPoolExecutor(1) as pool:
        assert ahead._WithLaunchers(pool).submit(lambda: kernel).result(WAIT_S) is kernel
    assert made == [("source", False)]


def test_text_before_the_machine_code_is_not_kept() -> None:
    before = knobs.compilation.store_binary_only
    with compiled_ahead(1):
        assert knobs.compilation.store_binary_only
    assert knobs.compilation.store_binary_only == before


def test_a_brief_run_launches_and_leaves_layers_out() -> None:
    with ahead.briefly():
        assert ahead.launches() and not ahead.all_layers()
    assert ahead.all_layers()
    with compiled_ahead(1):
        assert not ahead.launches() and not ahead.all_layers()
