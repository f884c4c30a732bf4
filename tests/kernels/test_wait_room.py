"""The program that waits for a flag leaves its multiprocessor to products that need nearly all shared memory."""

from types import SimpleNamespace

import pytest
import torch

from services.common.kernels import cuda_program
from services.common.kernels.wait_flag import kernel


def test_the_wait_asks_for_all_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own share is none, so what it does not ask for becomes first cache, and stays that until it ends."""
    done: list[object] = []

    class Program:
        def __getitem__(self, grid: tuple[int, ...]) -> object:
            def launch(*operands: object, **sizes: object) -> SimpleNamespace:
                done.append((grid, sizes["num_warps"]))
                return SimpleNamespace(function=42)

            return launch

    def called(function: str, handle: object, attribute: object, value: object) -> None:
        done.append((function, *(getattr(each, "value", None) for each in (handle, attribute, value))))

    monkeypatch.setattr(kernel, "_wait_kernel", Program())
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    monkeypatch.setattr(cuda_program, "call", called)
    kernel.wait_flag(torch.zeros(16, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), 0, 1.0)
    percent_of_shared_memory, all_of_it = 9, 100
    assert done == [((1,), 1), ("cuFuncSetAttribute", 42, percent_of_shared_memory, all_of_it)]
