"""Models with windows by the kernels: close to the CPU path, and the same bits however rows are cut and padded."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from services.common.kernels.cap_logits import bounded
from services.common.kernels.experts.kernel import Rating, Routes, route
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
    "laguna with experts of one size": ("laguna", EXPERTS | {"shared_expert_intermediate_size": 16}),
}
"""Family, and keys of its config.json."""
CLOSE = 0.1
"""Of the deviation of a router's numbers: rounding moves them by less."""
ROWS = 17
"""Nearly three windows."""


def sure_rows(folder: Path) -> list[int]:
    """The rows whose experts bfloat16 cannot change: one that takes another expert is as far away as experts differ.

    A model whose rows take all experts has no such rows, and was held to its distance instead once: on a GPU that of
    "gemma 4 with experts" is 1.51 times the CPU path's, and `ROUNDED` is 1.5.

    In float32 the last expert that they take and the first that they leave are further apart than rounding moves both.
    """
    sure = torch.ones(ROWS, dtype=torch.bool)

    def noted(gates_TF: Tensor, live_T: Tensor | None, count: int, top_k: int, *others: Any) -> Routes:
        rating = next(one for one in others if isinstance(one, Rating))
        asked = gates_TF[:, :count].double().cpu()
        if rating.bias_E is not None:
            asked = (bounded.reference(asked, rating.cap) if rating.cap else asked).sigmoid() + rating.bias_E.cpu()
        ordered = asked.sort(1, descending=True).values
        sure.logical_and_(ordered[:, top_k - 1] - ordered[:, top_k] > CLOSE * asked.std())
        return route(gates_TF, live_T, count, top_k, *others)

    with mock.patch("services.common.model.gpu.mixture.route", noted):
        run(load_target(folder, torch.float32, DEVICE), ((ROWS, ROWS, True),))
    return [int(row) for row in sure.nonzero()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", MODELS)
def test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path(
    model: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Chunks longer than the window, whose last rows are padding, rounds whose last rows are rejected, rows alone."""
    family, changes = MODELS[model]
    shape = replace(SHAPE, tied=family != "laguna")
    folder = write_tiny(tmp_path, 3, shape, std=0.25, family=family, changes=changes).target
    target = load_target(folder, dtype, DEVICE)
    plain, _ = run(target, ((8, 8, True), (8, 7, True), *[PLAIN] * (ROWS - 15)))
    found, _ = run(target, ((16, 13, True), (4, 4, False)))
    assert torch.equal(found, plain)
    if dtype == torch.bfloat16:
        # More rows than one program routes, and other products, which keep their order in this type.
        assert torch.equal(run(target, ((ROWS, ROWS, True),))[0], plain)
    with on_cpu():
        expected, _ = run(load_target(folder), ((ROWS, ROWS, True),))
    if dtype == torch.float32:
        torch.testing.assert_close(plain.cpu(), expected, atol=5e-4 * float(expected.abs().max()), rtol=0)
        return
    with on_cpu():
        rounded, _ = run(load_target(folder, dtype), ((ROWS, ROWS, True),))
    sure = sure_rows(folder)
    assert len(sure) >= ROWS // 3
    assert away(plain.cpu()[sure], expected[sure]) < ROUNDED * away(rounded[sure], expected[sure])
