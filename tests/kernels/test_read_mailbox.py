"""Invariant I6: only a copy with the right tag and ids in range counts."""

import torch

from services.common.kernels.mailbox import read_mailbox

VOCAB, ROUND, GENERATION = 50, 7, 3


def take(tokens: torch.Tensor, tags: torch.Tensor, rows: list[int], width: int = 3) -> list[list[int]]:
    out = torch.full((len(rows), width), 99)
    epochs = torch.tensor([10, 11, 12, 0])
    expected = torch.tensor([ROUND, GENERATION])
    read_mailbox(tokens, tags, torch.tensor(rows, dtype=torch.int32), epochs, expected, VOCAB, out)
    return out.tolist()


def mailbox() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.arange(4 * 5, dtype=torch.int32).view(4, 5)
    tags = torch.tensor([[ROUND, 10, GENERATION], [ROUND, 11, GENERATION], [ROUND, 12, GENERATION], [0, 0, 0]])
    return tokens, tags


def test_rows_are_read_through_their_slots() -> None:
    assert take(*mailbox(), rows=[2, 0]) == [[10, 11, 12], [0, 1, 2]]


def test_a_foreign_round_epoch_or_generation_is_absent() -> None:
    for field in range(3):
        tokens, tags = mailbox()
        tags[1, field] -= 1
        assert take(tokens, tags, rows=[0, 1, 2]) == [[0, 1, 2], [-1] * 3, [10, 11, 12]]


def test_an_id_out_of_range_makes_its_row_absent() -> None:
    for bad in (-1, VOCAB, -(2**31), 2**31 - 1):
        tokens, tags = mailbox()
        tokens[0, 2] = bad
        assert take(tokens, tags, rows=[0, 1]) == [[-1] * 3, [5, 6, 7]]


def test_ids_past_the_width_do_not_matter() -> None:
    tokens, tags = mailbox()
    tokens[0, 3] = -5
    assert take(tokens, tags, rows=[0]) == [[0, 1, 2]]


def test_the_pad_slot_is_absent() -> None:
    assert take(*mailbox(), rows=[3]) == [[-1] * 3]
