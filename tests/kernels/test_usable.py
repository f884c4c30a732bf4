"""Which GPUs take kernels in CUDA C++, and what the log says where they cannot be compiled."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch

import services.common.kernels
from services.common.kernels.experts.alone import kernel as row_of_experts
from services.common.kernels.experts.alone import source as row_source
from services.common.kernels.experts.tiles import kernel as tiles_of_experts
from services.common.kernels.experts.tiles.source import TileShape
from services.common.kernels.gated_delta import chunks, rounds
from services.common.kernels.linear import cuda_products, int8_kernel
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.packed import launch as packed
from services.common.kernels.linear.packed.tiling import packed_cut
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.skinny.tiling import skinny_cut
from services.common.kernels.nvrtc import CompileError
from services.common.kernels.span_attention import hopper
from services.common.kernels.span_attention.alone import kernel as alone
from services.common.kernels.span_attention.alone import source as alone_source
from services.common.kernels.span_attention.hopper.source import Shape
from tests.support.told import told


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
    "trees of narrow heads": Kernel(hopper, "program_of", (Shape(64, 3, 16, 1, True, nodes=True),)),
    "attention to codes": Kernel(hopper, "program_of", (Shape(128, 4, 16, 1, False, codes=True),)),
    "a row alone": Kernel(alone, "program_of", (alone_source.Shape(128, 4, 16),)),
    "a row through its experts": Kernel(row_of_experts, "program_of", (row_source.Shape(2048, 768, 128, 8, True),)),
    "tiles of experts": Kernel(tiles_of_experts, "program_of", (TileShape(2048, 768, 8, True),)),
    "products of few rows": Kernel(cuda_products, "_program", (skinny_cut(2560, 4096, 8, Kind.ADDED),)),
    "products in tiles": Kernel(cuda_products, "_program", (PersistentTiling(128, 96, 1, 8, wide=True),)),
    "packed products": Kernel(packed, "program_of", (packed_cut(2560, 4096, 8, Kind.ADDED, 1, False, True),)),
    "products of eight bits": Kernel(int8_kernel, "program_of", (PersistentTiling(128, 48, 1, 4),)),
}
OTHER_GPUS = (8, 0), (8, 9), (10, 0), (12, 0)
"""Capabilities of an A100, an L40S, a B200 and an RTX 5090."""


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
    """Neither an older one nor a newer one."""
    monkeypatch.setattr(kernel.module, kernel.compiler, lambda *_: pytest.fail("nothing is compiled"))
    for capability in OTHER_GPUS:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, told=capability: told)
        assert not kernel.usable(), capability


def test_every_module_that_asks_is_asked_here() -> None:
    root = Path(services.common.kernels.__path__[0])
    asking = {path for path in root.rglob("*.py") if "return compiles(" in path.read_text(encoding="utf-8")}
    assert asking == {Path(str(kernel.module.__file__)) for kernel in KERNELS.values()}


def test_what_compiles_on_it_serves(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert kernel.usable()
    assert not told(caplog)
