"""A hybrid of Qwen3.5-4B's widths on a GPU: the same bits however rows were cut, whoever is beside, and after a hit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_target
from services.common.model.states.states import Part, Rows
from tests.bench.gpu.shapes import DELTA_4B
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.kernels.gpu.test_hybrid_model import BLOCK_SIZE, BLOCKS, PLAIN, SLOT, WIDEST, Cut, left, run
from tests.support.tiny_checkpoints import TinyShape, write_configs

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SHAPE = TinyShape(vocab=512, hidden=2560, inner=2048, heads=16, kv_heads=4, head_dim=256)
LENGTH = 150
CUTS: tuple[tuple[Cut, ...], ...] = (
    ((256, LENGTH - 1, True), PLAIN),
    ((32, 30, True), (8, 3, False), (128, 90, True), (8, 8, False), (4, 1, False), (32, 17, True), PLAIN),
    (*((8, 1 + turn % 8, False) for turn in range(32)), (8, 5, False), PLAIN),
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    folder = Path(tmp_path_factory.mktemp("hybrid"))
    models = write_configs(folder, SHAPE, "qwen3_5_text", DELTA_4B)
    keep_order()
    return load_target(models.target, torch.bfloat16, DEVICE, random_weights=True)


@pytest.fixture(scope="module")
def plain(target: Target) -> tuple[Tensor, list[Tensor]]:
    logits, states = run(target, (PLAIN,) * LENGTH)
    return logits, left(states, LENGTH)


@pytest.mark.parametrize("cuts", CUTS, ids=["chunk", "mixed", "verifies"])
def test_cuts_leave_the_bits_of_plain_rounds(
    target: Target, plain: tuple[Tensor, list[Tensor]], cuts: tuple[Cut, ...]
) -> None:
    expected, states = plain
    logits, others = run(target, cuts)
    assert bool(expected.isfinite().all())
    assert torch.equal(logits, expected)
    for mine, theirs in zip(left(others, LENGTH), states, strict=True):
        assert torch.equal(mine, theirs)


def test_prompts_beside_one_another_have_the_bits_of_each_alone(target: Target) -> None:
    """Five prompts of other lengths in one pack, the last segment empty; then a round of all."""
    lengths, width = [64, 1, 33, 16, 50, 0], 64
    ids_BW = torch.randint(2, 512, (6, width), generator=torch.Generator().manual_seed(5)).to(DEVICE)
    together = _pack_and_round(target, ids_BW, lengths)
    for index, length in enumerate(lengths[:-1]):
        alone = _pack_and_round(target, ids_BW[index : index + 1], [length])
        for both, one in zip(together, alone, strict=True):
            assert torch.equal(both[index, : len(one[0])], one[0])


def _pack_and_round(target: Target, ids_BW: Tensor, lengths: list[int]) -> list[Tensor]:
    """Logits [B, ...] of the last row of each prompt, and of four rows behind it."""
    count, width = ids_BW.shape
    states = target.new_states(1 + 20 * count, BLOCK_SIZE, slots=count + 1, width=8)
    for tensor in states.tensors:
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
    table = torch.arange(1, 1 + 20 * count, dtype=torch.int32, device=DEVICE).view(count, 20)
    slots_B, valid_B = torch.arange(count, device=DEVICE), torch.tensor(lengths, device=DEVICE)
    zero_B = torch.zeros_like(valid_B)
    rows = Rows(Part(plan_span(table, zero_B, width, BLOCK_SIZE, valid_B), slots_B, valid_B))
    first = target.logits(target.forward(ids_BW.flatten(), rows, states)[0]).view(count, width, -1)
    rows = Rows(Part(plan_span(table, valid_B, 4, BLOCK_SIZE), slots_B))
    behind = target.logits(target.forward(ids_BW[:, :4].flatten(), rows, states)[0]).view(count, 4, -1)
    return [first[slots_B, (valid_B - 1).clamp(min=0)][:, None], behind]


def test_a_sequence_goes_on_from_a_snapshot_to_the_bit(target: Target) -> None:
    begun, rest = (64, 48, True), ((8, 5, False), (32, 20, True), PLAIN)
    expected, _ = run(target, (begun, *rest))
    states = run(target, (begun,))[1]
    kept = target.new_states(BLOCKS, BLOCK_SIZE, slots=3, width=WIDEST, snapshots=1)
    for own, other in zip(kept.tensors, states.tensors, strict=True):
        own.copy_(other)
    kept.save(SLOT, 0, 48)
    for tensor in kept.tensors[1:3]:
        tensor[:, SLOT] = float("nan")
    kept.reset(SLOT)
    kept.resume(SLOT, 0, 48)
    got, _ = run(target, rest, kept, 48)
    assert torch.equal(got, expected[48:])
