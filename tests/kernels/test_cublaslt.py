"""The binding of cuBLASLt: layouts and numbers of its header, what it is asked, and what is refused."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from services.common.kernels.linear.cublaslt import binding, header
from services.common.kernels.linear.cublaslt.algorithm import Algorithm, changed, config_of, refusal
from services.common.kernels.linear.cublaslt.binding import CublasLtError, Library, loaded_library
from services.common.kernels.linear.cublaslt.header import ConfigAttribute
from services.common.kernels.linear.cublaslt.problem import Problem
from tests.support.fake_cublaslt import FakeLt, algo_of

OUTPUTS, DEPTH, ROWS = 6144, 2560, 128
OPTIONS = {
    "ID": (0, 4), "TILE_ID": (1, 4), "SPLITK_NUM": (2, 4), "REDUCTION_SCHEME": (3, 4), "CTA_SWIZZLING": (4, 4),
    "CUSTOM_OPTION": (5, 4), "STAGES_ID": (6, 4), "INNER_SHAPE_ID": (7, 2), "CLUSTER_SHAPE_ID": (8, 2),
}  # fmt: skip
"""`cublasLtMatmulAlgoConfigAttributes_t`: numbers and bytes."""


@pytest.fixture
def lt() -> FakeLt:
    return FakeLt()


@pytest.fixture
def problem(lt: FakeLt) -> Problem:
    return Problem(Library(lt), OUTPUTS, DEPTH, ROWS)


def test_structures_are_as_large_as_in_the_header() -> None:
    words = {header.Layout: 8, header.Desc: 32, header.Preference: 8, header.Algo: 8}
    assert {kind: ctypes.sizeof(kind) // 8 for kind in words} == words
    result = header.HeuristicResult
    offsets = (result.workspace_size.offset, result.state.offset, result.waves_count.offset, result.reserved.offset)
    assert (ctypes.sizeof(result), *offsets) == (96, 64, 72, 76, 80)


def test_options_have_the_numbers_and_sizes_of_the_header() -> None:
    assert {one.name: (one.value, ctypes.sizeof(one.kind)) for one in ConfigAttribute} == OPTIONS


def test_rows_of_x_are_columns_to_the_library(lt: FakeLt, problem: Problem) -> None:
    """CUBLAS_COMPUTE_32F with scales of float32; weight transposed, x not; all three matrices of bfloat16."""
    assert [call[1:] for call in lt.of("cublasLtMatmulDescInit_internal")] == [(256, 68, 0)]
    assert [call[1:] for call in lt.of("cublasLtMatmulDescSetAttribute")] == [(3, 1, 4), (4, 0, 4)]
    layouts = [call[1:] for call in lt.of("cublasLtMatrixLayoutInit_internal")]
    assert layouts == [(64, 14, DEPTH, OUTPUTS, DEPTH), (64, 14, DEPTH, ROWS, DEPTH), (64, 14, OUTPUTS, ROWS, OUTPUTS)]


def test_candidates_are_asked_without_workspace_and_without_sums_of_parts(lt: FakeLt, problem: Problem) -> None:
    lt.found = [(algo_of(id=66), 0, 0), (algo_of(id=67), 0, 15), (algo_of(id=68), 4096, 0)]
    found = problem.candidates(24)
    assert [(one.algorithm.words[0], one.workspace_bytes) for one in found] == [(66, 0), (68, 4096)]
    assert [call[1:] for call in lt.of("cublasLtMatmulPreferenceSetAttribute")] == [(1, 0, 8), (3, 0, 4)]
    assert lt.of("cublasLtMatmulAlgoGetHeuristic")[0][0] == 77, "the handle"


@pytest.mark.parametrize(
    ("options", "workspace", "why"),
    [
        ({"splitk_num": 1}, 0, ""), ({"splitk_num": 0}, 0, ""), ({"splitk_num": 2}, 0, "split"),
        ({"splitk_num": 1, "reduction_scheme": 2}, 0, "reduction"), ({"splitk_num": 1}, 1 << 20, "workspace"),
    ],
)  # fmt: skip
def test_what_may_sum_a_depth_in_parts_is_refused(
    lt: FakeLt, problem: Problem, options: dict[str, int], workspace: int, why: str
) -> None:
    lt.workspace = workspace
    candidate = problem.check(Algorithm.of(algo_of(**options)))
    assert refusal(Library(lt), *candidate) == why


def test_a_product_gets_no_workspace_and_its_matrices_in_the_library_s_order(lt: FakeLt, problem: Problem) -> None:
    algo = algo_of(id=66)
    problem.launch(algo, x=1 << 40, weight=2 << 40, y=3 << 40, stream=9)
    ((handle, _, one, a, _, b, _, zero, c, _, d, _, chosen, *rest),) = lt.of("cublasLtMatmul")
    assert (handle, one, zero) == (77, 1.0, 0.0)
    assert (a, b, c, d) == (2 << 40, 1 << 40, 3 << 40, 3 << 40)
    assert (chosen, rest) == (algo, [None, 0, 9])


def test_a_status_that_is_not_success_is_an_error_with_its_name(lt: FakeLt, problem: Problem) -> None:
    lt.statuses["cublasLtMatmul"] = 15
    with pytest.raises(CublasLtError, match=r"cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED \(15\)") as refused:
        problem.launch(algo_of(id=66), 1, 2, 3, 0)
    assert refused.value.status == 15


def test_options_are_read_and_changed_one_by_one(lt: FakeLt) -> None:
    before = Algorithm.of(algo_of(tile_id=20, stages_id=35))
    after = changed(Library(lt), before, {ConfigAttribute.TILE_ID: 23})
    assert config_of(Library(lt), after)[ConfigAttribute.TILE_ID] == 23
    assert config_of(Library(lt), before)[ConfigAttribute.TILE_ID] == 20
    assert config_of(Library(lt), after)[ConfigAttribute.STAGES_ID] == 35


def test_an_algorithm_is_kept_as_text() -> None:
    algorithm = Algorithm((66, 0, 1 << 63, 0, 0xABC, 0, 0, 7))
    assert str(algorithm) == "42.0.8000000000000000.0.abc.0.0.7"
    assert Algorithm.parse(str(algorithm)) == algorithm
    assert Algorithm.of(algorithm.algo) == algorithm


@pytest.mark.parametrize("text", ["", "1.2", "0.0.0.0.0.0.0.10000000000000000", "x.0.0.0.0.0.0.0"])
def test_text_that_is_no_algorithm_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"words|invalid literal"):
        Algorithm.parse(text)


def test_the_library_is_the_one_that_this_process_has_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "opened", lambda path: path)
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 08:01 42                         "
    maps.write_text(f"{line} /a b/libcublas.so.13\n7f02-7f03 rw-p 00000000 00:00 0\n")
    assert loaded_library(maps) is None
    maps.write_text(f"{maps.read_text()}{line} /a b/libcublasLt.so.13\n")
    assert str(loaded_library(maps)) == "/a b/libcublasLt.so.13"
