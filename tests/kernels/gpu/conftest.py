"""Triton's interpreter, where it runs the kernels, without what it does again and again to no end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kernels.gpu.devices import INTERPRETED


@pytest.fixture(scope="session", autouse=INTERPRETED)
def brisk_interpreter(full: bool) -> Iterator[None]:
    """Puts the interpreted operators in place once a launch, and looks for overflows in the whole sweep alone.

    The interpreter looks through the whole language at every call of one kernel's function by another, and finds what
    the launch has put there. It computes each sum and product of 32-bit integers a second time in 64.
    """
    from triton.runtime import interpreter

    with pytest.MonkeyPatch.context() as patch:
        _patch_once_a_launch(interpreter, patch)
        options = interpreter.InterpreterOptions(sanitize_overflow=full)
        patch.setattr(interpreter.interpreter_builder, "options", options)
        yield


def _patch_once_a_launch(interpreter: Any, patch: pytest.MonkeyPatch) -> None:
    put_in_place: Callable[[Any], Any] = interpreter._patch_lang
    run: Callable[..., Any] = interpreter.GridExecutor.__call__
    present: set[frozenset[int]] = set()

    def once(function: Any) -> Any:
        languages = (interpreter.tl, interpreter.tl.core)
        asked = frozenset(
            id(value) for value in function.__globals__.values() if any(value is one for one in languages)
        )
        if asked in present:
            return interpreter._LangPatchScope()
        present.add(asked)
        return put_in_place(function)

    def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(executor, *args, **kwargs)
        finally:
            present.clear()

    patch.setattr(interpreter, "_patch_lang", once)
    patch.setattr(interpreter.GridExecutor, "__call__", launch)
