"""Keys and values in eight bits: logits are those of transformers over a cache of what the definition says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_target
from services.common.model.states.states import Part, Rows
from tests.support.tiny_checkpoints import TinyShape, write_tiny

BLOCK, COUNT = 16, 24


def rounded(heads_BHTD: Tensor) -> Tensor:
    """Each head of a token as whole numbers of at most 127 times the least power of two that allows it."""
    step_BHT1 = torch.exp2(torch.log2(heads_BHTD.abs().amax(-1, keepdim=True) / 127).ceil())
    return (heads_BHTD / step_BHT1).round() * step_BHT1


def by_transformers(folder: Path, ids: Tensor) -> Tensor:
    from transformers import AutoModelForCausalLM, DynamicCache

    class Coded(DynamicCache):  # type: ignore[misc]
        def update(self, keys: Tensor, values: Tensor, *args: Any, **more: Any) -> Any:
            return super().update(rounded(keys), rounded(values), *args, **more)

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        return torch.as_tensor(model(ids[None], past_key_values=Coded()).logits[0])


def ours(target: Target, ids: Tensor, width: int, coded: bool) -> Tensor:
    """Logits of all rows, so many at a time."""
    states = target.new_states(8, BLOCK, coded=coded)
    table, zero, parts = torch.arange(1, 8, dtype=torch.int32)[None], torch.zeros(1, dtype=torch.int64), []
    for start in range(0, len(ids), width):
        some = ids[start : start + width]
        rows = Rows(Part(plan_span(table, zero + start, len(some), BLOCK), zero))
        parts.append(target.logits(target.forward(some, rows, states)[0]))
    return torch.cat(parts)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_logits_are_those_of_the_definition(family: str, tmp_path: Path) -> None:
    shape = TinyShape(layers=3, taps=(0, 2))
    folder = write_tiny(tmp_path, 3, shape, family=family, std=0.1, dtype=torch.bfloat16).target
    ids = torch.randint(2, 300, (COUNT,), generator=torch.Generator().manual_seed(5))
    target = load_target(folder, torch.float64)
    logits, wide = (ours(target, ids, COUNT, coded) for coded in (True, False))
    # Transformers turns heads by tables of float32.
    assert torch.allclose(logits, by_transformers(folder, ids), atol=1e-5)
    assert float((logits - wide).abs().max()) > 1e-3
    narrow = load_target(folder, torch.float32)
    whole = ours(narrow, ids, COUNT, coded=True)
    for width in (1, 7):
        assert torch.equal(ours(narrow, ids, width, coded=True), whole), "a row has the same bits in any company"
    assert torch.allclose(whole.double(), logits, atol=2e-3)
