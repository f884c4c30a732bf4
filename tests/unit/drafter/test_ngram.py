"""Prompt lookup against a search by hand."""

import random

import pytest
import torch

from services.drafter.proposers import NO_DRAFT
from services.drafter.proposers.ngram import lookup
from services.drafter.proposers.repeats import OCCURRENCES

SEED = 20_260


def _by_hand(tokens: list[int], count: int, longest: int, shortest: int) -> list[int]:
    """Of the latest occurrences of the longest suffix follow the one that the others go on with for longest."""
    for size in range(longest, shortest - 1, -1):
        starts = [at + size for at in range(len(tokens) - size) if tokens[at : at + size] == tokens[-size:]]
        paths = [_followed(tokens, start, count) for start in reversed(starts)][:OCCURRENCES]
        if paths:
            return max(paths, key=lambda path: sum(_alike(path, other) for other in paths))
    return [NO_DRAFT] * count


def _followed(tokens: list[int], source: int, count: int) -> list[int]:
    text = list(tokens)
    for place in range(source, source + count):
        text.append(text[place])
    return text[len(tokens) :]


def _alike(path: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(path, other, strict=True))
    return next((place for place, (one, two) in pairs if one != two), len(path))


@pytest.mark.parametrize("alphabet", [2, 4, 30])
@pytest.mark.parametrize("bounds", [(4, 1), (3, 2), (1, 1)])
def test_equals_a_search_by_hand(alphabet: int, bounds: tuple[int, int]) -> None:
    source = random.Random(SEED + alphabet)
    longest, shortest = bounds
    for _ in range(40):
        context, count = source.randint(2, 40), source.randint(1, 9)
        rows = [[source.randrange(alphabet) for _ in range(source.randint(1, context))] for _ in range(5)]
        history_BC = torch.full((5, context), alphabet - 1, dtype=torch.int32)
        for index, row in enumerate(rows):
            history_BC[index, : len(row)] = torch.tensor(row, dtype=torch.int32)
        found = lookup(history_BC, torch.tensor([len(row) for row in rows]), count, longest, shortest)
        assert found.tolist() == [_by_hand(row, count, longest, shortest) for row in rows], f"seed {SEED}"


def test_an_empty_history_drafts_nothing() -> None:
    found = lookup(torch.zeros(1, 8, dtype=torch.int32), torch.tensor([0]), 3, 4, 1)
    assert found.tolist() == [[NO_DRAFT] * 3]


def test_what_most_matches_say_wins() -> None:
    history = torch.tensor([[5, 2, 6, 5, 2, 7, 5, 1, 8, 5]], dtype=torch.int32)
    assert lookup(history, torch.tensor([10]), 1, 4, 1).tolist() == [[2]]


def test_the_latest_of_equal_matches_wins() -> None:
    history = torch.tensor([[5, 1, 5, 2, 5]], dtype=torch.int32)
    assert lookup(history, torch.tensor([5]), 2, 4, 1).tolist() == [[2, 5]]


def test_a_loop_is_continued_past_the_present() -> None:
    history = torch.tensor([[9, 1, 2, 1, 2, 0, 0]], dtype=torch.int32)
    assert lookup(history, torch.tensor([5]), 7, 4, 1).tolist() == [[1, 2, 1, 2, 1, 2, 1]]
