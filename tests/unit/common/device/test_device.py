"""A lost device ends the process; a sound one, and a CPU, do not. A GPU's context keeps no stack."""

from __future__ import annotations

import contextlib
import os
import sys
from types import SimpleNamespace

import pytest
import torch

from services.common.device.device import end_if_lost, keep_no_stack, sound


class LostStream:
    """What any stream is after a fatal fault."""

    def query(self) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


class BusyStream:
    """A stream that has work to do."""

    def query(self) -> bool:
        return False


class EndedError(Exception):
    """The process would have ended."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr(os, "_exit", end)


def test_a_cpu_is_never_lost(ends: None) -> None:
    assert sound(torch.device("cpu"))
    end_if_lost(torch.device("cpu"))


def test_a_busy_gpu_is_sound(ends: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: BusyStream())
    assert sound(torch.device("cuda"))
    end_if_lost(torch.device("cuda"))


def test_a_lost_gpu_ends_the_process(ends: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: LostStream())
    assert not sound(torch.device("cuda"))
    with pytest.raises(EndedError):
        end_if_lost(torch.device("cuda"))


def test_a_gpu_context_keeps_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit 0 is cudaLimitStackSize; a CPU has neither cupy nor limits."""
    limits: list[tuple[int, int]] = []
    runtime = SimpleNamespace(deviceSetLimit=lambda limit, value: limits.append((limit, value)))
    cuda = SimpleNamespace(Device=lambda index: contextlib.nullcontext(), runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    keep_no_stack(torch.device("cpu"))
    assert limits == []
    keep_no_stack(torch.device("cuda"))
    assert limits == [(0, 0)]
