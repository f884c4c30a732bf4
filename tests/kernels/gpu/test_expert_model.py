"""Models with experts by the kernels: close to the CPU path, and the same bits however rows are cut and padded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.model import load_target
from tests.kernels.gpu.devices import DEVICE, DTYPES
from tests.kernels.gpu.test_hybrid_model import LAYERS, PLAIN, SHAPE, on_cpu, run
from tests.support.tiny_checkpoints import write_tiny

EXPERTS: dict[str, Any] = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
MODELS: dict[str, dict[str, Any]] = {
    "qwen3_moe": EXPERTS | {"mlp_only_layers": [0]},
    "qwen3_5_moe_text": EXPERTS | LAYERS | {"shared_expert_intermediate_size": 32},
}


ROUNDED = 1.5
"""In bfloat16 the kernels are no further from float32 than so many times what the CPU path is in bfloat16."""


def away(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference."""
    return float((found.double().cpu() - expected.double()).norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", MODELS)
def test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path(
    family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Chunks whose last rows are padding, rounds whose last rows are rejected, and rows alone."""
    shape = replace(SHAPE, tied=family != "qwen3_moe")
    folder = write_tiny(tmp_path, 3, shape, std=0.25, family=family, changes=MODELS[family]).target
    target = load_target(folder, dtype, DEVICE)
    plain, _ = run(target, ((8, 8, True), (8, 7, True), PLAIN, PLAIN))
    found, _ = run(target, ((16, 13, True), (4, 3, False), PLAIN))
    assert torch.equal(found, plain)
    with on_cpu():
        expected, _ = run(load_target(folder), ((17, 17, True),))
    if dtype == torch.float32:
        torch.testing.assert_close(plain.cpu(), expected, atol=5e-4 * float(expected.abs().max()), rtol=0)
        return
    with on_cpu():
        rounded, _ = run(load_target(folder, dtype), ((17, 17, True),))
    assert away(plain, expected) < ROUNDED * away(rounded, expected)
