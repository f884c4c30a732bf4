"""Keys and values in eight bits are what their definition says, in families that answer to them most."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.kernels.kv_codes.reference import coded, widened
from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_target
from services.common.model.states.states import Part, Rows
from tests.support.tiny_checkpoints import TinyShape, write_tiny

BLOCK, COUNT, STD = 16, 40, 0.1


def ours(target: Target, ids: Tensor, codes: bool) -> Tensor:
    table, zero = torch.arange(1, 8, dtype=torch.int32)[None], torch.zeros(1, dtype=torch.int64)
    rows = Rows(Part(plan_span(table, zero, COUNT, BLOCK), zero))
    return target.logits(target.forward(ids, rows, target.new_states(8, BLOCK, coded=codes))[0])


def by_transformers(folder: Path, ids: Tensor) -> Tensor:
    """Logits of a model whose cache keeps what codes mean."""
    from transformers import AutoModelForCausalLM, DynamicCache

    class Cache(DynamicCache):  # type: ignore[misc]
        def update(self, keys: Tensor, values: Tensor, *places: Any, **more: Any) -> Any:
            return super().update(kept(keys), kept(values), *places, **more)

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    )
    with torch.no_grad():
        return torch.as_tensor(model(ids[None], past_key_values=Cache(config=model.config), use_cache=True).logits[0])


def kept(heads_1HTD: Tensor) -> Tensor:
    """What is left of heads that were coded."""
    heads_THD = heads_1HTD[0].transpose(0, 1)
    return widened(*coded(heads_THD), heads_THD.dtype).transpose(0, 1)[None]


def test_logits_by_codes_are_those_of_another_engine_that_keeps_the_same_numbers(tmp_path: Path, full: bool) -> None:
    """Random weights answer to a head's last digit: these logits are far from those of wide keys and values."""
    ids = torch.randint(2, 300, (COUNT,), generator=torch.Generator().manual_seed(5))
    for family in ("laguna", "gemma4_text") if full else ("laguna",):
        folder = write_tiny(tmp_path / family, 3, TinyShape(layers=3, taps=(0, 1)), family=family, std=STD).target
        target = load_target(folder, torch.float64)
        wide, codes = (ours(target, ids, eight) for eight in (False, True))
        scale = float(wide.abs().max())
        assert float((codes - by_transformers(folder, ids)).abs().max()) < 1e-4 * scale
        assert float((codes - wide).abs().max()) > 5e-3 * scale
