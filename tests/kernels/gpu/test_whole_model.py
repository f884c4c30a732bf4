"""A model whose rows and weights have eight bits: by kernels the logits of the references, at any width."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_target
from services.common.model.states.states import Part, Rows
from tests.kernels.gpu.devices import DEVICE
from tests.kernels.gpu.test_model import as_references
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

SHAPE = TinyShape(vocab=270, hidden=32, inner=48, layers=1, heads=2, kv_heads=1, head_dim=16, taps=(0,))
BLOCK, COUNT, WIDTHS = 4, 7, (7, 4)


def logits(target: Target, width: int) -> Tensor:
    """Of all rows, so many at a time, with the streams that a drafter taps."""
    table = torch.arange(1, 8, dtype=torch.int32, device=target.device)[None]
    ids, zero = torch.arange(3, 3 + COUNT, device=target.device), torch.zeros_like(table[:, 0], dtype=torch.int64)
    states, parts = target.new_states(8, BLOCK), []
    for start in range(0, COUNT, width):
        some = ids[start : start + width]
        rows = Rows(Part(plan_span(table, zero + start, len(some), BLOCK), zero))
        hidden, features = target.forward(some, rows, states, (0,))
        parts.append(torch.cat((target.logits(hidden), features), -1))
    return torch.cat(parts)


def test_whole_numbers_by_kernels_give_the_logits_of_the_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny(tmp_path, 3, SHAPE, std=0.2, dtype=torch.bfloat16).target
    pack_checkpoint(folder, tmp_path / "twin", LAYOUTS["ct-int8"])
    dtype = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    target = load_target(folder, dtype, DEVICE, activations="int8")
    by_kernels = [logits(target, width) for width in WIDTHS]
    for other in by_kernels[1:]:
        assert torch.equal(other, by_kernels[0]) or DEVICE == "cpu"
        # A last bit of attention may move a code, where sums have no order of their own.
        torch.testing.assert_close(other, by_kernels[0], atol=2e-2, rtol=2e-2)
    as_references(monkeypatch)
    expected, wide = (logits(load_target(folder, torch.float64, activations=kept), COUNT) for kept in ("int8", "auto"))
    error, rounding = (by_kernels[0].cpu() - expected).norm(), (wide - expected).norm()
    assert float(error) < 0.2 * float(rounding), "rounding rows is what differs from wide ones, and is done alike"


def test_weights_are_kept_as_whole_numbers_and_take_half(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 3, SHAPE, dtype=torch.bfloat16).target
    pack_checkpoint(folder, tmp_path / "twin", LAYOUTS["ct-int8"])
    whole, wide = (load_target(folder, torch.float32, activations=kept) for kept in ("int8", "auto"))
    tables = 4 * (270 * 32 * (1 if wide.spec.tied else 2))
    lines, numbers = 4 * 16 + 32 + 96 + 32, 4 * 16 * 32 + 32 * 32 + 3 * 32 * 48
    vectors = wide.weight_bytes - tables - 4 * numbers
    assert wide.weight_bytes == 4 * wide.elements
    assert whole.weight_bytes == tables + numbers + 4 * lines + vectors
    assert whole.products == ((270, 32),), "no engine has another order of whole sums, so no check may refuse one"
