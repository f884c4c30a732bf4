"""What a round reads of its slots and leaves for the other process, against the same in torch."""

import dataclasses

import pytest
import torch
from torch import Tensor

from services.common.kernels.mailbox import Mapped, publish_slots, write_mailbox
from services.common.kernels.mailbox import kernel as post_kernel
from services.common.kernels.mailbox import kernel as publish_kernel
from services.common.kernels.prepare_span import kernel as seat_kernel
from services.common.kernels.prepare_span import prepare_span, seat_block
from services.common.kernels.span_attention import Span
from tests.kernels.gpu.devices import DEVICE

ROWS = torch.tensor([2, 0, 3], dtype=torch.int32)
ANCHORS, LENGTHS = torch.tensor([7, 8, 9, 0]), torch.tensor([6, 3, 15, 0])
TABLES = torch.tensor([[3, 5, 8, 0], [1, 0, 0, 0], [7, 4, 2, 9], [0, 0, 0, 0]], dtype=torch.int32)
BLOCK_SIZE = 4


def there(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.to(DEVICE) for tensor in tensors)


def assert_same(got: Span, expected: Span, names: tuple[str, ...]) -> None:
    assert (got.width, got.block_size) == (expected.width, expected.block_size)
    for name in names:
        assert torch.equal(getattr(got, name).cpu(), getattr(expected, name)), name


@pytest.mark.parametrize("count", [0, 3])
def test_seat_drafts(count: int) -> None:
    drafts = torch.tensor([[5, -1, 12], [-1, -1, -1], [4, 4, 4]])[:, :count].contiguous()
    rows, anchors, lengths, tables, drafts_there = there(ROWS, ANCHORS, LENGTHS, TABLES, drafts)
    ids, span = seat_kernel.prepare_rows(rows, anchors, lengths, tables, drafts_there, count + 1, BLOCK_SIZE)
    expected_ids, expected = prepare_span.reference(ROWS, ANCHORS, LENGTHS, TABLES, drafts, BLOCK_SIZE)
    assert torch.equal(ids.cpu(), expected_ids)
    assert_same(span, expected, ("block_table_BN", "lengths_B", "reach_B", "positions_BW", "slots_T"))


def test_seat_block() -> None:
    rows, anchors, lengths, tables = there(ROWS, ANCHORS, LENGTHS, TABLES)
    ids, span = seat_kernel.prepare_rows(rows, anchors, lengths, tables, None, 6, BLOCK_SIZE, 99)
    expected_ids, expected = seat_block.reference(ROWS, ANCHORS, LENGTHS, TABLES, 6, BLOCK_SIZE, 99)
    assert torch.equal(ids.cpu(), expected_ids)
    assert_same(span, expected, ("block_table_BN", "lengths_B", "reach_B", "positions_BW", "slots_T"))


@pytest.mark.parametrize("count", [1, 3, 150])
def test_sequences_are_ranked_from_the_longest_on(count: int) -> None:
    """Those of one length stay in their order."""
    slots = torch.randperm(count, generator=torch.Generator().manual_seed(1)).to(torch.int32)
    lengths = torch.arange(count) * 7 % 40
    rows, anchors, lengths_there, tables = there(slots, lengths, lengths, torch.zeros(count, 2, dtype=torch.int32))
    drafts = torch.zeros(count, 3, dtype=torch.int64, device=DEVICE)
    _, span = seat_kernel.prepare_rows(rows, anchors, lengths_there, tables, drafts, 4, 64)
    assert span.ranks_B2 is not None
    own = lengths[slots.long()].tolist()
    expected = sorted(range(count), key=lambda row: (-own[row], row))
    assert span.ranks_B2.tolist() == [[row, own[row]] for row in expected]


def test_sequences_of_a_drafter_are_not_ranked() -> None:
    """Their lengths may change while they are read; a place that no row took would be read as a row."""
    rows, anchors, lengths, tables = there(ROWS, ANCHORS, LENGTHS, TABLES)
    _, span = seat_kernel.prepare_rows(rows, anchors, lengths, tables, None, 6, BLOCK_SIZE, 99)
    assert span.ranks_B2 is None


@pytest.mark.parametrize("trees", [False, True])
def test_post_drafts(trees: bool) -> None:
    drafts, epochs, stamp = torch.arange(6).view(3, 2), torch.tensor([4, 5, 6, 7]), torch.tensor([11, 2])
    tokens, tags = torch.full((4, 5), -9, dtype=torch.int32), torch.zeros(4, 3, dtype=torch.int64)
    parents, followed = torch.tensor([0, 1]).expand(3, -1), tokens.clone()
    drafts_there, rows, epochs_there, stamp_there, tokens_there, tags_there, parents_there, followed_there = there(
        drafts, ROWS, epochs, stamp, tokens, tags, parents, followed
    )
    of_trees, of_trees_there = ((parents, followed), (parents_there, followed_there)) if trees else ((), ())
    post_kernel.write_mailbox(drafts_there, rows, epochs_there, stamp_there, tokens_there, tags_there, *of_trees_there)
    write_mailbox.reference(drafts, ROWS, epochs, stamp, tokens, tags, *of_trees)
    assert torch.equal(tokens_there.cpu(), tokens)
    assert torch.equal(tags_there.cpu(), tags)
    assert torch.equal(followed_there.cpu(), followed)
    assert bool((followed >= 0).any()) == trees


def test_publish_slots() -> None:
    mapped = Mapped(torch.full((5,), -9, dtype=torch.int32), *(torch.full((4,), -9) for _ in range(3)))
    got = Mapped(*there(*(getattr(mapped, field.name).clone() for field in dataclasses.fields(mapped))))
    rows, lengths, anchors = there(ROWS, LENGTHS, ANCHORS)
    publish_kernel.publish_slots(rows, lengths, anchors, got)
    publish_slots.reference(ROWS, LENGTHS, ANCHORS, mapped)
    for field in dataclasses.fields(mapped):
        assert torch.equal(getattr(got, field.name).cpu(), getattr(mapped, field.name)), field.name
