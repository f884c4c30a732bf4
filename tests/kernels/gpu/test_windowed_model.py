"""Models with windows by the kernels: close to the CPU path, and the same bits however rows are cut and padded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.model import load_target
from tests.kernels.gpu.devices import DEVICE, DTYPES
from tests.kernels.gpu.test_expert_model import ROUNDED, away
from tests.kernels.gpu.test_hybrid_model import PLAIN, on_cpu, run
from tests.support.tiny_checkpoints import BESIDE, TinyShape, write_tiny

SHAPE = TinyShape(vocab=270, hidden=16, inner=24, layers=2, heads=2, kv_heads=1, window=6, draft_layers=1, taps=(0, 1))
EXPERTS: dict[str, Any] = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24,
    "moe_router_logit_softcapping": 3.0, "num_attention_heads_per_layer": [2, 3],
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma 3": ("gemma3_text", {}),
    "gemma 4": ("gemma4_text", {}),
    "gemma 4 with experts": ("gemma4_text", dict(BESIDE)),
    "laguna": ("laguna", EXPERTS),
}
"""Family, and keys of its config.json."""
ROWS = 17
"""Nearly three windows."""


def written(folder: Path, model: str, every: bool = False) -> Path:
    """A checkpoint of a kind, whose rows take all experts or two of them."""
    family, changes = MODELS[model]
    counts = {"num_experts_per_tok": "num_experts", "top_k_experts": "num_experts"}
    if every:
        changes = changes | {name: changes[count] for name, count in counts.items() if name in changes}
    shape = replace(SHAPE, tied=family != "laguna")
    return write_tiny(folder, 3, shape, std=0.25, family=family, changes=changes).target


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", MODELS)
def test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path(
    model: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Chunks longer than the window, whose last rows are padding, rounds whose last rows are rejected, rows alone.

    In bfloat16 a row may take another expert than in float32, and is then as far away as experts differ, which says
    nothing of kernels. So distance is that of a model whose rows take all experts; bits are those of both.
    """
    folder = written(tmp_path / "some", model)
    target = load_target(folder, dtype, DEVICE)
    plain, _ = run(target, ((8, 8, True), (8, 7, True), *[PLAIN] * (ROWS - 15)))
    found, _ = run(target, ((16, 13, True), (4, 4, False)))
    assert torch.equal(found, plain)
    if dtype == torch.float32:
        with on_cpu():
            expected, _ = run(load_target(folder), ((ROWS, ROWS, True),))
        torch.testing.assert_close(plain.cpu(), expected, atol=5e-4 * float(expected.abs().max()), rtol=0)
        return
    every = written(tmp_path / "every", model, every=True)
    with on_cpu():
        expected, rounded = (run(load_target(every, kind), ((ROWS, ROWS, True),))[0] for kind in (torch.float32, dtype))
    target = load_target(every, dtype, DEVICE)
    (found, _), (plain, _) = run(target, ((16, 16, True), PLAIN)), run(target, ((8, 8, True), *[PLAIN] * (ROWS - 8)))
    assert torch.equal(found, plain)
    assert away(plain, expected) < ROUNDED * away(rounded, expected)
