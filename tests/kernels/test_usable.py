"""Which GPUs take kernels in CUDA C++, and what the log says where they cannot be compiled."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import pytest
import torch

from services.common.kernels.gated_delta import chunks, rounds
from services.common.kernels.linear import cuda_products, int8_cuda
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.skinny.tiling import skinny_cut
from services.common.kernels.nvrtc import CompileError
from services.common.kernels.span_attention import hopper
from services.common.kernels.span_attention.hopper.source import Shape


class Kernel(NamedTuple):
    """A module that asks whether its kernels can be used, the name of what compiles them, and what it asks for."""

    module: ModuleType
    compiler: str
    asked: tuple[object, ...] = ()

    def usable(self) -> bool:
        """Ask anew."""
        answer: bool = self.module._usable.__wrapped__(torch.device("cuda"), *self.asked)
        return answer


KERNELS = {
    "rounds of recurrent layers": Kernel(rounds, "program_of"),
    "rounds of many sequences": Kernel(rounds, "many_program"),
    "chunks of recurrent layers": Kernel(chunks, "prepare_program"),
    "chains of chunks": Kernel(chunks, "chain_program"),
    "attention": Kernel(hopper, "program_of", (Shape(128, 4, 16, 1, False),)),
    "products of few rows": Kernel(cuda_products, "_program", (skinny_cut(2560, 4096, 8, Kind.ADDED),)),
    "products in tiles": Kernel(cuda_products, "_program", (PersistentTiling(128, 96, 1, 8, wide=True),)),
    "products of eight bits": Kernel(int8_cuda, "program_of", (PersistentTiling(128, 48, 1, 4),)),
}


@pytest.fixture(params=list(KERNELS.values()), ids=list(KERNELS))
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A kernel of which everything can be compiled."""
    kernel: Kernel = request.param
    for name in {each.compiler for each in KERNELS.values() if each.module is kernel.module}:
        monkeypatch.setattr(kernel.module, name, lambda *_: None)
    return kernel


@pytest.mark.parametrize("error", [CompileError("refused"), ModuleNotFoundError("triton"), OSError("no compiler")])
def test_without_a_compiler_others_serve_and_the_log_says_so(
    error: Exception, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(kernel.module, kernel.compiler, refused)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert not kernel.usable()
    assert str(error) in caplog.text


def test_only_the_measured_kind_of_gpu_compiles_them(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.module, kernel.compiler, lambda *_: pytest.fail("nothing is compiled"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert not kernel.usable()


def test_what_compiles_on_it_serves(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert kernel.usable()
    assert not caplog.text
