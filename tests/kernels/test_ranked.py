"""Which products go by an algorithm of the table: those of this GPU and library that the library still accepts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest
import torch

from services.common.kernels.linear import ranked
from services.common.kernels.linear.algorithms import ALGORITHMS
from services.common.kernels.linear.allowed import Product
from services.common.kernels.linear.cublaslt.algorithm import Algorithm
from services.common.kernels.linear.cublaslt.binding import Library
from services.common.kernels.linear.cublaslt.problem import ALIGNMENT
from tests.support.fake_cublaslt import FakeLt, algo_of

GPU, PRODUCT = "NVIDIA H200", (6144, 2560, 128)
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLt]:
    fake = FakeLt()
    monkeypatch.setattr(ranked, "loaded_library", lambda: Library(fake))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: GPU)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    ranked.ranked_products.cache_clear()
    yield fake
    ranked.ranked_products.cache_clear()


def keep(monkeypatch: pytest.MonkeyPatch, gpu: str, version: int, **options: int) -> None:
    text = str(Algorithm.of(algo_of(**options)))
    monkeypatch.setattr(ranked, "ALGORITHMS", {(gpu, version): {PRODUCT: text}})


def test_a_row_holds_for_its_gpu_and_version_alone(lt: FakeLt, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu, version, expected in ((GPU, 130100, [PRODUCT]), (GPU, 130101, []), ("NVIDIA H100", 130100, [])):
        keep(monkeypatch, gpu, version, splitk_num=1)
        ranked.ranked_products.cache_clear()
        assert list(ranked.ranked_products(DEVICE)) == expected
    assert len(lt.of("cublasLtCreate")) == 1, "without rows nothing is opened on the device"


def test_a_row_that_the_library_refuses_is_told_and_left_to_torch(
    lt: FakeLt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep(monkeypatch, GPU, 130100, splitk_num=1)
    lt.statuses["cublasLtMatmulAlgoCheck"] = 15
    with caplog.at_level(logging.WARNING):
        assert ranked.ranked_products(DEVICE) == {}
    assert "cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_SUPPORTED (15)" in caplog.text


def test_a_row_that_splits_the_depth_is_left_to_torch(lt: FakeLt, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, GPU, 130100, splitk_num=4)
    assert ranked.ranked_products(DEVICE) == {}


@pytest.mark.parametrize(("workspace", "expected"), [(4, [PRODUCT]), (64, [PRODUCT]), (4096, [])])
def test_room_for_a_counter_of_tiles_holds_no_part_of_a_sum(
    lt: FakeLt, monkeypatch: pytest.MonkeyPatch, workspace: int, expected: list[Product]
) -> None:
    keep(monkeypatch, GPU, 130100, splitk_num=1)
    lt.workspace = workspace
    assert list(ranked.ranked_products(DEVICE)) == expected


def test_matrices_must_be_whole_aligned_and_of_two_bytes() -> None:
    room = torch.zeros(8 * 256 + ALIGNMENT, dtype=torch.bfloat16)
    first = -room.data_ptr() % ALIGNMENT // 2
    fine = room[first : first + 8 * 256].view(8, 256)
    assert ranked._suit(fine, fine)
    assert not ranked._suit(fine, room[first + 8 : first + 8 + 8 * 256].view(8, 256))
    assert not ranked._suit(fine[:, :128], fine)
    assert not ranked._suit(fine, fine.float())


def test_a_processor_s_products_are_left_to_torch() -> None:
    x = torch.zeros((128, 2560), dtype=torch.bfloat16)
    assert ranked.ranked_product(x, torch.zeros((8, 2560), dtype=torch.bfloat16)) is None


def test_every_row_of_the_table_is_an_algorithm_for_many_rows() -> None:
    for rows in ALGORITHMS.values():
        for (outputs, depth, count), text in rows.items():
            assert str(Algorithm.parse(text)) == text
            assert outputs > 0
            assert depth > 0
            assert count > 64, "fewer rows are ours"
