"""Products in CUDA C++: where they serve, and what serves without them."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.cuda_program import TensorMap
from services.common.kernels.linear import Normed, cuda_products, kernel, reference
from services.common.kernels.linear.cuda_products import Kind, cuda_tiling
from services.common.kernels.linear.kernel import Engine
from services.common.kernels.linear.persistent import wide
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.skinny.tiling import SkinnyTiling, skinny_cut

FEW, MANY = skinny_cut(2560, 4096, 8, Kind.ADDED), wide.wide_cut(2560, 4096, 128, Kind.ADDED)


def test_few_rows_and_some_hundred_are_cut_otherwise() -> None:
    assert isinstance(FEW, SkinnyTiling)
    assert isinstance(MANY, PersistentTiling)


@pytest.mark.parametrize("rows", [4, 128])
def test_a_cpu_takes_none(rows: int) -> None:
    x_TD, weight_FD = torch.zeros(rows, 4096, dtype=torch.bfloat16), torch.zeros(2560, 4096, dtype=torch.bfloat16)
    assert cuda_tiling(x_TD, weight_FD, Kind.ADDED) is None


def test_few_rows_that_were_refused_go_through_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "cuda_tiling", lambda *_: pytest.fail("it was refused"))
    monkeypatch.setattr(kernel, "allowed", lambda *_: False)
    x_TD, weight_FD = torch.ones(4, 128, dtype=torch.bfloat16), torch.ones(64, 128, dtype=torch.bfloat16)
    assert kernel.engine_of(x_TD, weight_FD) is Engine.TRITON


def test_many_rows_that_were_refused_go_through_triton_64_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "cuda_tiling", lambda *_: pytest.fail("it was refused"))
    monkeypatch.setattr(kernel, "allowed", lambda *_: False)
    monkeypatch.setattr(kernel, "_product", reference.linear)
    monkeypatch.setattr(kernel, "begin_norm", lambda product_TF, *_: product_TF)
    x_TD, weight_FD = torch.ones(128, 16, dtype=torch.bfloat16), torch.ones(8, 16, dtype=torch.bfloat16)
    stream_TF = torch.zeros(128, 8, dtype=torch.bfloat16)
    product_TF, _ = kernel.linear_added(x_TD, weight_FD, stream_TF, stream_TF[0], 1e-6)
    assert torch.equal(torch.as_tensor(product_TF), torch.full((128, 8), 16.0, dtype=torch.bfloat16))


WIDE = PersistentTiling(128, 96, 1, 8, wide=True)


def test_a_product_that_was_measured_in_tiles_is_not_cut_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "MEASURED", {(2560, 4096, Kind.ADDED): {128: WIDE}})
    monkeypatch.setattr(TensorMap, "takes", lambda _: True)
    monkeypatch.setattr(cuda_products, "_usable", lambda *_: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    weight_FD = torch.zeros(2560, 4096, dtype=torch.bfloat16)
    found = [cuda_tiling(torch.zeros(rows, 4096, dtype=torch.bfloat16), weight_FD, Kind.ADDED) for rows in (8, 128)]
    assert found == [FEW, WIDE]


def test_a_kernel_in_tiles_is_given_the_ends_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[tuple[bool, ...]] = []
    monkeypatch.setattr(cuda_products, "launch", lambda *given: ends.append(tuple(end is not None for end in given[4])))
    x_TD, weight_FD = torch.ones(128, 64, dtype=torch.bfloat16), torch.ones(32, 64, dtype=torch.bfloat16)
    squares_T, stream_TF = torch.ones(128, dtype=torch.int64), torch.zeros(128, 32, dtype=torch.bfloat16)
    gated = WIDE._replace(kind=Kind.GATED)
    cuda_products.cuda_normed(Normed(x_TD), weight_FD, 0.0, WIDE)
    assert cuda_products.cuda_normed(Normed(x_TD, squares_T), weight_FD, 1e-6, gated).shape == (128, 16)
    cuda_products.cuda_added(x_TD, weight_FD, stream_TF, stream_TF[0], squares_T, 0.0, WIDE)
    assert ends == [
        (True, False, False, False, False, False),
        (True, False, False, False, True, False),
        (True, True, True, True, False, True),
    ]


def test_the_norm_of_a_sum_is_begun_behind_a_product_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the product alone was measured."""
    monkeypatch.setattr(kernel, "cuda_tiling", lambda _x, _w, kind, _routed: WIDE if kind == Kind.PLAIN else None)
    monkeypatch.setattr(
        kernel, "cuda_normed", lambda normed, weight_FD, *_: reference.linear(normed.rows_TD, weight_FD)
    )
    monkeypatch.setattr(kernel, "library_product", lambda *_: pytest.fail("the library was asked"))
    monkeypatch.setattr(kernel, "begin_norm", lambda product_TF, *_: product_TF)
    x_TD, weight_FD = torch.ones(128, 16, dtype=torch.bfloat16), torch.ones(8, 16, dtype=torch.bfloat16)
    stream_TF = torch.zeros(128, 8, dtype=torch.bfloat16)
    product_TF, _ = kernel.linear_added(x_TD, weight_FD, stream_TF, stream_TF[0], 1e-6)
    assert torch.equal(torch.as_tensor(product_TF), torch.full((128, 8), 16.0, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("rows", "engine", "earlier"),
    [
        (1, Engine.BANDS, True), (32, Engine.BANDS, True), (33, Engine.TILES, False), (128, Engine.TILES, False),
        (4096, Engine.LIBRARY, True),
    ],
)  # fmt: skip
def test_what_multiplies_says_what_a_kernel_behind_it_may_read_early(
    rows: int, engine: Engine, earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention that begins before a product ends reads what this says is complete, and nothing else."""
    monkeypatch.setattr(TensorMap, "takes", lambda _: True)
    monkeypatch.setattr(cuda_products, "_usable", lambda *_: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    x_TD, weight_FD = torch.zeros(rows, 2560, dtype=torch.bfloat16), torch.zeros(6144, 2560, dtype=torch.bfloat16)
    found = kernel.engine_of(x_TD, weight_FD)
    assert (found, found.earlier_is_complete) == (engine, earlier)
