"""Rows of eight bits are asked for only where a file has what multiplies them, which is told before the start."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.common.model import load_target
from services.common.preflight import memory
from services.common.preflight.checks import Asked, problems, room, rounding
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

SHAPE = TinyShape(hidden=128, inner=128, layers=2, heads=2, kv_heads=2, head_dim=64, taps=(0, 1))


def made(tmp_path: Path, layout: str = "", family: str = "qwen3", shape: TinyShape = SHAPE) -> str:
    shape = TinyShape() if family == "qwen3_5" else shape
    folder = write_tiny(tmp_path, 3, shape, family=family, std=0.1, dtype=torch.bfloat16).target
    if layout:
        pack_checkpoint(folder, tmp_path / "twin", LAYOUTS[layout])
    return str(folder)


@pytest.mark.parametrize(
    ("layout", "activations"),
    [("ct-int8", "int8"), ("fp8-bf16", "fp8"), ("ct-fp8-block-128", "fp8"), ("awq", "auto"), ("", "auto")],
)
def test_a_file_that_has_it_is_served(layout: str, activations: str, tmp_path: Path) -> None:
    model = made(tmp_path, layout)
    assert list(problems(Asked(model, activations=activations), (rounding,))) == []
    load_target(Path(model), torch.float32, activations=activations)


@pytest.mark.parametrize("layout", ["", "awq", "fp8-f32", "fp8-tensor", "ct-int8", "ct-fp8-block", "ct-fp8-lines"])
def test_rows_of_fp8_need_codes_of_blocks(layout: str, tmp_path: Path) -> None:
    model = made(tmp_path, layout)
    (found,) = problems(Asked(model, activations="fp8"), (rounding,))
    assert found.line.startswith(f"--activations fp8: {model} has no codes of FP8 with scales of 128 x 128")
    assert "take the model's -FP8 file, or leave it out" in found.line


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_gpu_needs_whole_blocks(device: str, tmp_path: Path) -> None:
    model = made(tmp_path, "fp8-bf16", shape=replace(SHAPE, inner=320))
    found = list(problems(Asked(model, activations="fp8", device=device), (rounding,)))
    assert len(found) == (device == "cuda")
    for problem in found:
        assert "_proj.weight has lines or inputs that are no multiple of 128" in problem.line
        assert "serve it on a CPU, or leave it out" in problem.line


@pytest.mark.parametrize("layout", [
    "", "awq", "fp8-bf16", "ct-fp8-lines", "ct-int8-asymmetric", "ct-int8-groups", "ct-int4", "ct-nvfp4",
])  # fmt: skip
def test_rows_of_int8_need_whole_numbers(layout: str, tmp_path: Path) -> None:
    model = made(tmp_path, layout)
    (found,) = problems(Asked(model, activations="int8"), (rounding,))
    assert found.line.startswith(f"--activations int8: {model} has no whole numbers with a scale a line")
    assert "take a w8a8 file of compressed-tensors, or leave it out" in found.line


@pytest.mark.parametrize("activations", ["int8", "fp8"])
def test_models_with_experts_or_gates_are_told(activations: str, tmp_path: Path) -> None:
    (found,) = problems(Asked(made(tmp_path, family="qwen3_moe"), activations=activations), (rounding,))
    assert "is for dense models without gates alone" in found.line


@pytest.mark.parametrize("activations", ["int8", "fp8"])
def test_random_weights_need_no_file(activations: str, tmp_path: Path) -> None:
    asked = Asked(made(tmp_path), activations=activations, weightless=True)
    assert list(problems(asked, (rounding,))) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_random_weights_have_whole_blocks(device: str, tmp_path: Path) -> None:
    """No file says how those of other sizes would be cut."""
    asked = Asked(made(tmp_path, shape=replace(SHAPE, inner=320)), activations="fp8", weightless=True, device=device)
    (found,) = problems(asked, (rounding,))
    assert "_proj.weight has lines or inputs that are no multiple of 128" in found.line
    assert "leave it out" in found.line
    assert "CPU" not in found.line


def test_a_number_takes_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs: list[int] = []

    def told(name: str, need: memory.Need, *_: object) -> None:
        needs.append(need.target)

    monkeypatch.setattr(memory, "memory_problem", told)
    model = made(tmp_path, "fp8-bf16")
    for activations in ("auto", "fp8"):
        list(problems(Asked(model, activations=activations, device="cpu", dtype="float32"), (room,)))
    wide, narrow = needs
    assert narrow == -(-wide // 4)
