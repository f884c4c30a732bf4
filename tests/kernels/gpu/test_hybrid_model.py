"""A hybrid run through the kernels: close to the same on the CPU path, and the same bits however its rows are cut."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_target
from services.common.model.states.states import Part, Rows, SequenceStates
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.pairs import ids_like

SHAPE = TinyShape(vocab=270, hidden=16, inner=24, layers=2, heads=1, kv_heads=1, draft_layers=1, taps=(0, 1))
LAYERS = {
    "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 16, "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
}  # fmt: skip
BLOCKS, BLOCK_SIZE, SLOT = 44, 4, 1
WIDEST = 4 if INTERPRETED else 8
PLAIN = (1, 1, False)
Cut = tuple[int, int, bool]
"""Rows of a span, how many of them stay, and whether they are a prompt's."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(tmp_path_factory.mktemp("hybrid"))
    return write_tiny(folder, 3, SHAPE, std=0.25, family="qwen3_5_text", changes=LAYERS).target


@contextmanager
def on_cpu() -> Iterator[None]:
    """The CPU path, under the interpreter too."""
    with (
        mock.patch("services.common.model.stack.on_kernel", return_value=False),
        mock.patch("services.common.model.states.recurrent.on_kernel", return_value=False),
        mock.patch("services.common.model.target.on_kernel", return_value=False),
    ):
        yield


def poisoned(target: Target) -> SequenceStates:
    """States full of NaN; rounds are at most `WIDEST` wide."""
    states = target.new_states(BLOCKS, BLOCK_SIZE, slots=3, width=WIDEST)
    for tensor in states.tensors:
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
    return states


def run(
    target: Target, cuts: Sequence[Cut], states: SequenceStates | None = None, length: int = 0
) -> tuple[Tensor, SequenceStates]:
    """One sequence in a slot of its own, over states full of NaN; returns the logits of the rows that stay."""
    states, device = states or poisoned(target), target.device
    table = torch.arange(1, BLOCKS, dtype=torch.int32, device=device)[None]
    ids, logits = ids_like(160, vocab=270).to(device), []
    for width, kept, prompt in cuts:
        valid_B = torch.tensor([kept], device=device) if prompt else None
        span = plan_span(table, torch.tensor([length], device=device), width, BLOCK_SIZE, valid_B)
        rows = Rows(Part(span, torch.tensor([SLOT], dtype=torch.int32, device=device), valid_B))
        rejected = F.pad(ids[length : length + kept], (0, width - kept), value=7)
        logits.append(target.logits(target.forward(rejected, rows, states)[0])[:kept])
        length += kept
    return torch.cat(logits), states


def left(states: SequenceStates, length: int) -> list[Tensor]:
    """State and ring of the slot, what it has folded, and all K/V."""
    kv, state, ring, folded = states.tensors
    places = torch.arange(BLOCK_SIZE, BLOCK_SIZE + length, device=kv.device)
    rows = torch.arange(length - 4, length, device=kv.device) % ring.shape[2]
    return [kv.flatten(2, 3)[:, :, places], state[:, SLOT], ring[:, SLOT, rows], folded]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path(checkpoint: Path, dtype: torch.dtype) -> None:
    """Of up to sixteen rows, for which the interpreter's products have one order; wider ones than 4 are chunks."""
    target = load_target(checkpoint, dtype, DEVICE)
    plain, states = run(target, ((8, 8, True), (8, 7, True), PLAIN, PLAIN))
    found, others = run(target, ((16, 13, True), (4, 3, False), PLAIN))
    assert torch.equal(found, plain)
    for mine, theirs in zip(left(others, 17), left(states, 17), strict=True):
        assert torch.equal(mine, theirs)
    with on_cpu():
        expected, _ = run(load_target(checkpoint), ((17, 17, True),))
    loose = 0.1 if dtype == torch.bfloat16 else 5e-4
    torch.testing.assert_close(plain.float().cpu(), expected, atol=loose * float(expected.abs().max()), rtol=0)
