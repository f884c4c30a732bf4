"""Pre-flight of a mixture that no GPU holds: experts beside it count for the machine's memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.common.preflight import memory, weights
from services.common.preflight.checks import Asked, coding, problems, residency
from services.common.preflight.memory import Gpu, Need, memory_problem
from services.common.preflight.source import Source
from tests.support.packed_checkpoints import LAYOUTS
from tests.support.tiny_checkpoints import EXPERTS, TinyShape, write_configs

GIB = 1 << 30
LARGE = Need(target=30 * GIB, drafter=0, tables=GIB, experts=28 * GIB)
"""60 GiB in bfloat16, of which experts are 56."""
HELD = Need(target=30 * GIB, drafter=0, tables=GIB, experts=28 * GIB, expert_bytes=12 * GIB)
GPU = Gpu("H", 24 * GIB, 23 * GIB)


def test_numbers_tell_the_experts(tmp_path: Path) -> None:
    changes = {"num_experts": 6, "moe_intermediate_size": 32, "mlp_only_layers": [1]}
    folder = write_configs(tmp_path, TinyShape(), "qwen3_moe", changes).target
    *_, experts = weights.numbers(weights.target_spec(Source(str(folder))), None)
    assert experts == 3 * 6 * 3 * 32 * 32


def test_a_budget_leaves_the_other_experts_beside_the_gpu() -> None:
    assert LARGE.beside(2, 1) == 0
    assert HELD.beside(2, 1) == (56 - 12) * GIB
    assert LARGE.on_gpu(2, 1) - HELD.on_gpu(2, 1) == 44 * GIB
    assert Need(30 * GIB, 0, GIB, 28 * GIB, 99 * GIB).beside(2, 1) == 0, "all of them fit"


def test_experts_of_fp8_files_count_a_byte_each() -> None:
    """On a GPU; a CPU widens them."""
    assert LARGE.on_gpu(2, 1) - replace(LARGE, coded=True).on_gpu(2, 1) == 28 * GIB
    held = replace(HELD, coded=True)
    assert held.beside(2, 1) == (28 - 12) * GIB
    assert replace(LARGE, coded=True).on_gpu(2, 1) - held.on_gpu(2, 1) == 16 * GIB
    assert LARGE.on_cpu(2, 1) == replace(LARGE, coded=True).on_cpu(2, 1)


@pytest.mark.parametrize(("layout", "coded"), [("fp8-bf16", True), ("ct-int4", False), ("", False)])
def test_the_configuration_says_whether_experts_are_codes(layout: str, coded: bool, tmp_path: Path) -> None:
    changes = {"quantization_config": dict(LAYOUTS[layout].config)} if layout else {}
    folder = write_configs(tmp_path, TinyShape(), "qwen3_moe", changes).target
    assert weights.has_codes_of_experts(Source(str(folder))) is coded


@pytest.mark.parametrize(("need", "free", "said"), [
    (LARGE, 99, "needs at least"),
    (HELD, 50, ""),
    (HELD, 40, "needs 47.2 GB of memory for experts beside the GPU, and 42.9 GB are free"),
])  # fmt: skip
def test_what_does_not_fit_is_said(need: Need, free: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: free * GIB)
    problem = memory_problem("m", need, (GPU,), "bfloat16", 0.9, 1)
    assert (problem is None) == (said == "")
    assert problem is None or said in problem.line


@pytest.mark.parametrize(("family", "gpus", "bytes_", "said"), [
    ("qwen3_moe", (), 1 << 20, "--target.expert-bytes 1048576: on a CPU all experts lie in its memory; leave it out"),
    ("qwen3", (GPU,), 1 << 20, "--target.expert-bytes 1048576: the model has no experts that may lie in host memory"),
    ("qwen3_moe", (GPU,), 9, "--target.expert-bytes 9: 9 are too few, one expert of each layer takes 24576; give more"),
    ("qwen3_moe", (GPU,), 1 << 20, ""),
    ("qwen3", (), 0, ""),
])  # fmt: skip
def test_a_budget_without_a_use_is_said_before_anything_starts(
    family: str, gpus: tuple[Gpu, ...], bytes_: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "gpus", lambda: gpus)
    folder = write_configs(tmp_path, TinyShape(), family, EXPERTS if family == "qwen3_moe" else None).target
    lines = [found.line for found in problems(Asked(str(folder), expert_bytes=bytes_), (residency,))]
    assert (lines == []) == (said == "") and all(line.startswith(said) for line in lines), lines


@pytest.mark.parametrize(("head_dim", "gpus", "said"), [
    (12, (GPU,), "--kv-dtype int8: on a GPU heads must be a multiple of 16, and some are 12; leave it out"),
    (12, (), ""),
    (16, (GPU,), ""),
])  # fmt: skip
def test_heads_that_kernels_do_not_take_are_said(
    head_dim: int, gpus: tuple[Gpu, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "gpus", lambda: gpus)
    folder = write_configs(tmp_path, TinyShape(head_dim=head_dim), "qwen3").target
    found = [one.line for one in problems(Asked(str(folder), kv_dtype="int8"), (coding,))]
    assert found == ([said] if said else [])
