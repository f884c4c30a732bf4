"""Products in CUDA C++: where they serve, and what serves without them."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.linear import kernel, reference
from services.common.kernels.linear.cuda_products import Kind, cuda_tiling
from services.common.kernels.linear.fused.tiling import FusedTiling, fused_cut
from services.common.kernels.linear.skinny.tiling import SkinnyTiling, skinny_cut

FEW, MANY = skinny_cut(2560, 4096, 8, Kind.ADDED), fused_cut(2560, 4096, 128, Kind.ADDED)


def test_few_rows_and_some_hundred_are_cut_otherwise() -> None:
    assert isinstance(FEW, SkinnyTiling)
    assert isinstance(MANY, FusedTiling)


@pytest.mark.parametrize("rows", [4, 128])
def test_a_cpu_takes_none(rows: int) -> None:
    x_TD, weight_FD = torch.zeros(rows, 4096, dtype=torch.bfloat16), torch.zeros(2560, 4096, dtype=torch.bfloat16)
    assert cuda_tiling(x_TD, weight_FD, Kind.ADDED) is None


def test_few_rows_that_were_refused_go_through_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "cuda_tiling", lambda *_: pytest.fail("it was refused"))
    monkeypatch.setattr(kernel, "allowed", lambda *_: False)
    x_TD, weight_FD = torch.ones(4, 128, dtype=torch.bfloat16), torch.ones(64, 128, dtype=torch.bfloat16)
    assert not kernel.is_skinny(x_TD, weight_FD)


def test_many_rows_that_were_refused_go_through_triton_64_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "cuda_tiling", lambda *_: pytest.fail("it was refused"))
    monkeypatch.setattr(kernel, "allowed", lambda *_: False)
    monkeypatch.setattr(kernel, "_product", reference.linear)
    monkeypatch.setattr(kernel, "begin_norm", lambda product_TF, *_: product_TF)
    x_TD, weight_FD = torch.ones(128, 16, dtype=torch.bfloat16), torch.ones(8, 16, dtype=torch.bfloat16)
    stream_TF = torch.zeros(128, 8, dtype=torch.bfloat16)
    product_TF, _ = kernel.linear_added(x_TD, weight_FD, stream_TF, stream_TF[0], 1e-6)
    assert torch.equal(torch.as_tensor(product_TF), torch.full((128, 8), 16.0, dtype=torch.bfloat16))
