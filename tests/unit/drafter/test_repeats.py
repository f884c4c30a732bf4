"""Continuations of repeated suffixes against a plain search, and how much they are trusted."""

import random

import pytest
import torch

from services.drafter.proposers.repeats import OCCURRENCES, Repeats, repeats

COUNT, LONGEST = 6, 5


def looked_up(*texts: list[int], count: int = COUNT, shortest: int = 1) -> Repeats:
    length = max(map(len, texts)) + 3
    history = torch.tensor([[*text, *[99] * (length - len(text))] for text in texts], dtype=torch.int32)
    return repeats(history, torch.tensor([len(text) for text in texts]), count, LONGEST, shortest)


def plain(text: list[int]) -> tuple[list[int], list[float], int]:
    """The continuation, the share of occurrences that go on with each token, and the length of the match."""
    end = len(text)
    sizes = {place: _alike(text[:place], text) for place in range(1, end)}
    longest = max(sizes.values(), default=0)
    starts = sorted((place for place, size in sizes.items() if size == longest and size), reverse=True)[:OCCURRENCES]
    paths = [[text[start + step % (end - start)] for step in range(COUNT)] for start in starts]
    if not paths:
        return [], [], 0
    counts = [
        [sum(other[: step + 1] == path[: step + 1] for other in paths) for step in range(COUNT)] for path in paths
    ]
    best = max(range(len(paths)), key=lambda one: (sum(counts[one]), -one))
    before = [len(paths), *counts[best][:-1]]
    return paths[best], [now / then for now, then in zip(counts[best], before, strict=True)], longest


def _alike(part: list[int], text: list[int]) -> int:
    """How many of the last tokens are equal."""
    pairs = list(zip(reversed(part), reversed(text), strict=False))[:LONGEST]
    return next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))


@pytest.mark.parametrize("letters", [2, 3, 6])
def test_continuations_are_those_of_a_plain_search(letters: int, seed: int) -> None:
    draw = random.Random(seed + letters)
    texts = [[draw.randrange(letters) for _ in range(draw.randint(1, 40))] for _ in range(60)]
    found = looked_up(*texts)
    for row, text in enumerate(texts):
        tokens, shares, longest = plain(text)
        chances = found.chances_BK[row].tolist()
        if not longest:
            assert not any(chances)
            continue
        reached, path = 0, 1.0
        for step, share in enumerate(shares):
            chance = share * (1.0 - 2.0 / (longest + step + 1) ** 1.5)
            path *= chance
            if path < 0.05:
                break
            assert chances[step] == pytest.approx(chance, abs=1e-5)
            reached += 1
        assert found.tokens_BK[row, :reached].tolist() == tokens[:reached]
        assert not any(chances[reached:])


def test_the_majority_is_followed_not_the_latest() -> None:
    found = looked_up([5, 1, 2, 8, 6, 1, 2, 8, 7, 1, 2, 9, 4, 1, 2])
    assert found.tokens_BK[0, 0] == 8


def test_a_path_ends_where_it_is_not_likely() -> None:
    """What all occurrences agree about goes on; where each says something else a path ends."""
    same = looked_up([1, 2, 3, 4, 5, 6, 7, 8] * 3)
    assert (same.chances_BK > 0.5).all()
    apart = looked_up([token for last in range(10, 18) for token in (1, 2, last, last + 20)] + [1, 2])
    assert (apart.chances_BK[0] > 0).tolist() == [True, True, False, False, False, False]
    assert apart.chances_BK[0, 0] < 0.1


def test_short_matches_and_texts_count_for_nothing() -> None:
    found = looked_up([1, 2, 3, 9, 3], [5], [], shortest=2)
    assert not found.chances_BK.any()
