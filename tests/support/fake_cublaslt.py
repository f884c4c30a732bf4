"""A cuBLASLt without a GPU: it keeps what it is told, by the layouts of the real header."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from services.common.kernels.linear.cublaslt.header import Algo, ConfigAttribute

NAMES = {1: b"CUBLAS_STATUS_NOT_INITIALIZED", 7: b"CUBLAS_STATUS_INVALID_VALUE", 15: b"CUBLAS_STATUS_NOT_SUPPORTED"}


def algo_of(**options: int) -> Algo:
    """An algorithm whose words are the options by number."""
    algo = Algo()
    for name, value in options.items():
        algo.data[ConfigAttribute[name.upper()] % 8] = value
    return algo


class FakeLt:
    """Functions of the library by name; `calls` are names and plain arguments, `statuses` what functions answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.statuses: dict[str, int] = {}
        self.found: list[tuple[Algo, int, int]] = []
        """What the heuristic finds: algorithm, workspace, state."""
        self.workspace = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((name, tuple(_plain(argument) for argument in arguments)))
            status = self.statuses.get(name, 0)
            if status == 0:
                getattr(self, f"_{name}", lambda *_: None)(*arguments)
            return status

        if name.startswith("_"):
            raise AttributeError(name)
        return call

    def cublasLtGetVersion(self) -> int:
        return 130100

    def cublasLtGetStatusName(self, status: int) -> bytes:
        return NAMES[status]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of every call of a function."""
        return [arguments for called, arguments in self.calls if called == name]

    def _cublasLtCreate(self, handle: Any) -> None:
        handle._obj.value = 77

    def _cublasLtMatmulAlgoConfigGetAttribute(self, algo: Any, attribute: int, value: Any, *_: Any) -> None:
        value._obj.value = algo._obj.data[attribute % 8]

    def _cublasLtMatmulAlgoConfigSetAttribute(self, algo: Any, attribute: int, value: Any, size: int) -> None:
        assert size == ctypes.sizeof(value._obj)
        algo._obj.data[attribute % 8] = value._obj.value

    def _cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> None:
        *_, results, count = arguments
        for result, (algo, workspace, state) in zip(results, self.found, strict=False):
            result.algo, result.workspace_size, result.state = algo, workspace, state
        count._obj.value = min(len(self.found), len(results))

    def _cublasLtMatmulAlgoCheck(self, *arguments: Any) -> None:
        arguments[-1]._obj.workspace_size = self.workspace


def _plain(argument: Any) -> Any:
    """The number behind a reference to one, and everything else as it is."""
    target = getattr(argument, "_obj", argument)
    return target.value if isinstance(target, ctypes._SimpleCData) else target
