"""Rows and weights of eight bits: logits of the definition, equal bits in any company, and files that have others."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from services.common.kernels.span_attention import plan_span
from services.common.model import ModelError, Target, load_target
from services.common.model.states.states import Part, Rows
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

BLOCK, COUNT = 16, 24


class Eight(nn.Module):
    """Rows as whole numbers of at most 127 by their largest, times the file's, times both scales."""

    def __init__(self, codes_FD: Tensor, scale_F1: Tensor) -> None:
        super().__init__()
        self.codes_FD, self.scale_F = codes_FD.double(), scale_F1.flatten().double()

    def forward(self, x: Tensor) -> Tensor:
        step = x.abs().amax(-1, keepdim=True) / 127
        return (x / step).round() @ self.codes_FD.T * step * self.scale_F


def made(tmp_path: Path, layout: str, family: str = "qwen3") -> Path:
    shape = TinyShape() if family == "qwen3_5" else TinyShape(layers=2, taps=(0, 1))
    folder = write_tiny(tmp_path, 3, shape, family=family, std=0.1, dtype=torch.bfloat16).target
    pack_checkpoint(folder, tmp_path / "twin", LAYOUTS[layout])
    return folder


def by_transformers(folder: Path, twin: Path, ids: Tensor) -> Tensor:
    from transformers import AutoModelForCausalLM

    model, tensors = (
        AutoModelForCausalLM.from_pretrained(twin, dtype=torch.float64),
        load_file(folder / "model.safetensors"),
    )
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name != "lm_head":
            holder, _, own = name.rpartition(".")
            eight = Eight(tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"])
            setattr(model.get_submodule(holder), own, eight)
    with torch.no_grad():
        return torch.as_tensor(model(ids[None]).logits[0])


def ours(target: Target, ids: Tensor, width: int, coded: bool = False) -> Tensor:
    """Logits of all rows, so many at a time."""
    states = target.new_states(8, BLOCK, coded=coded)
    table, zero, parts = torch.arange(1, 8, dtype=torch.int32)[None], torch.zeros(1, dtype=torch.int64), []
    for start in range(0, len(ids), width):
        some = ids[start : start + width]
        rows = Rows(Part(plan_span(table, zero + start, len(some), BLOCK), zero))
        parts.append(target.logits(target.forward(some, rows, states)[0]))
    return torch.cat(parts)


def test_logits_are_those_of_the_definition_and_rows_the_same_in_any_company(tmp_path: Path) -> None:
    folder = made(tmp_path, "ct-int8")
    ids = torch.randint(2, 300, (COUNT,), generator=torch.Generator().manual_seed(5))
    logits = ours(load_target(folder, torch.float64, activations="int8"), ids, COUNT)
    wide = ours(load_target(folder, torch.float64), ids, COUNT)
    theirs = by_transformers(folder, tmp_path / "twin", ids)
    # It turns heads by tables of float32, and a row may lie between two codes.
    assert float((logits - theirs).norm()) < 0.05 * float((wide - theirs).norm())
    narrow = load_target(folder, torch.float32, activations="int8")
    for coded in (False, True):
        whole = ours(narrow, ids, COUNT, coded)
        for width in (1, 7):
            assert torch.equal(ours(narrow, ids, width, coded), whole)


@pytest.mark.parametrize(
    ("layout", "family", "message"),
    [
        ("ct-int8-groups", "qwen3", "has no whole numbers with a scale a line.*int-quantized"),
        ("ct-int8-asymmetric", "qwen3", "has no whole numbers with a scale a line.*int-quantized"),
        ("ct-fp8-lines", "qwen3", "has no whole numbers with a scale a line.*int-quantized"),
        ("awq", "qwen3", "has no whole numbers with a scale a line.*int-quantized"),
        ("ct-int8", "qwen3_5", "for dense models without gates alone"),
        ("ct-int8", "qwen3_moe", "for dense models without gates alone"),
    ],
)
def test_other_files_and_models_are_refused_with_what_to_take(
    layout: str, family: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        load_target(made(tmp_path, layout, family), activations="int8")


def test_plain_weights_are_refused(tmp_path: Path) -> None:
    made(tmp_path, "ct-int8")
    with pytest.raises(ModelError, match="twin: has no whole numbers"):
        load_target(tmp_path / "twin", activations="int8")
