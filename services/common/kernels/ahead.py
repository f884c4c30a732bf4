"""Compiles in threads what steps will launch, before any of them is captured.

Captures compile a kernel when they meet it, one after the other: that was most of a start without a cache. Here steps
run once and launch nothing. What they would launch is compiled meanwhile by as many threads as there are.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import torch
from torch.overrides import TorchFunctionMode

_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")


class Program(Protocol):
    """A kernel whose machine code is on its way."""

    def finish(self) -> None:
        """Wait for the code and load it. Raises what the compiler or the driver says."""
        ...


class _Pass:
    """What is compiled while steps launch nothing."""

    def __init__(self, threads: Executor, programs: list[Program]) -> None:
        self.threads, self.programs = threads, programs


class _WithLaunchers(Executor):
    """Compiles kernels of Triton and, behind each, the C code that launches it."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    def submit(self, fn: Callable[_Asked, _Answer], /, *args: _Asked.args, **kwargs: _Asked.kwargs) -> Future[_Answer]:
        """Have a thread compile; what a launcher is refused for is met again by the first launch."""

        def compiled() -> _Answer:
            kernel: Any = fn(*args, **kwargs)
            with suppress(Exception):
                from triton.runtime.driver import driver

                driver.active.launcher_cls(kernel.src, kernel.metadata)
            return cast("_Answer", kernel)

        return self._threads.submit(compiled)


class _Zeros(TorchFunctionMode):
    """Fills memory that is asked for unwritten: no index that is read from it is out of bounds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        return made.zero_() if func in _UNWRITTEN else made


_UNWRITTEN = (torch.empty, torch.empty_like, torch.Tensor.new_empty)
_present: _Pass | None = None
_brief = ContextVar("brief", default=False)
_answers: list[Callable[[], None]] = []


def meet_triton() -> None:
    """Has Triton hash itself, as it does once in a process before its first kernel; it takes 0.3 s."""
    from triton.runtime.cache import triton_key

    triton_key()


def launches() -> bool:
    """Whether kernels are launched now, and not only compiled."""
    return _present is None


def all_layers() -> bool:
    """Whether steps run all layers now, and not only those that launch all there are."""
    return _present is None and not _brief.get()


@contextmanager
def briefly() -> Iterator[None]:
    """Launch what there is, and not each layer: the libraries and the driver have met all of it then."""
    token = _brief.set(True)
    try:
        yield
    finally:
        _brief.reset(token)


def begun(program: Program, compiled: Callable[[], bytes]) -> "Future[bytes] | None":
    """Return the code that a thread compiles for a program; None where kernels are launched, and so needed at once."""
    if _present is None:
        return None
    _present.programs.append(program)
    return _present.threads.submit(compiled)


def kept(answer: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
    """Keep answers, as `functools.cache` does, until a program that was compiled ahead is refused."""
    cached = cache(answer)
    _answers.append(cached.cache_clear)
    return cast("Callable[_Asked, _Answer]", cached)


@contextmanager
def compiled_ahead(threads: int) -> Iterator[None]:
    """Compile what the block would launch, in so many threads, and launch none of it; wait for all at the end.

    Operators of torch run as ever, and find zeros where kernels would have written. A kernel that is refused is met
    again when it is captured, as without this. Of a kernel in Triton its machine code is kept and no text before it,
    which every later start would read.
    """
    global _present
    from triton import knobs
    from triton.runtime import _async_compile
    from triton.runtime.jit import JITFunction

    run, programs = JITFunction.run, list[Program]()

    def compiled(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        return run(kernel, *args, grid=grid, warmup=True, **named)

    with ThreadPoolExecutor(threads, "compile") as pool, knobs.compilation.scope():
        knobs.compilation.store_binary_only = True
        try:
            with _async_compile.AsyncCompileMode(_WithLaunchers(pool)), _Zeros():
                _present, JITFunction.run = _Pass(pool, programs), compiled
                try:
                    yield
                finally:
                    _present, JITFunction.run = None, run
        finally:
            # Where a kernel of Triton was refused, its mode does not end by itself.
            _async_compile.active_mode.set(None)
            _finish(programs)


def _finish(programs: list[Program]) -> None:
    refused = 0
    for program in programs:
        try:
            program.finish()
        except (RuntimeError, ImportError, OSError) as error:
            refused += 1
            _LOG.warning("a program that was compiled ahead is refused: %s", error)
    if refused:
        for forget in _answers:
            forget()


def compile_steps(steps: Iterable[Callable[[], object]], threads: int) -> None:
    """Compile what steps launch, by no more threads than there are processors.

    A start without it is slow and as right, so no error of it ends a start.
    """
    start, cpu, count, run_s = time.perf_counter(), time.process_time(), 0, 0.0
    try:
        with compiled_ahead(min(threads, os.cpu_count() or 1)):
            for step in steps:
                step()
                count += 1
            run_s = time.perf_counter() - start
    except Exception:
        _LOG.exception("kernels are compiled when they are captured")
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    told = {"seconds": seconds, "steps_s": run_s, "cpu_s": cpu_s}
    _LOG.info("compiled ahead", extra={"steps": count, **{name: round(value, 3) for name, value in told.items()}})
