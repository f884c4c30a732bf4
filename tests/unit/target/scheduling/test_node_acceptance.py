"""What rounds of trees are expected to commit, and which number of nodes they come to."""

import random
from collections.abc import Sequence

import pytest

from services.target.scheduling.width.node_acceptance import NodeAcceptance
from services.target.scheduling.width.width import adaptive_policy

WIDTHS = (1, 4, 8, 16)
EVEN, STEEP = (0.8,) * 15, (0.7, 0.2, 0.1, 0.05, *[0.0] * 11)
"""Chances of each row to be on the accepted path."""


def path_of(dice: random.Random, chances: Sequence[float], width: int) -> list[int]:
    return [row for row in range(1, width) if dice.random() < chances[row - 1]]


def taught(chances: Sequence[float], width: int, rounds: int = 400) -> NodeAcceptance:
    dice, acceptance = random.Random(1), NodeAcceptance(WIDTHS)
    acceptance.join(7, None)
    for _ in range(rounds):
        path = path_of(dice, chances, width)
        acceptance.observe(7, width - 1, len(path), False, path)
    return acceptance


@pytest.mark.parametrize("chances", [EVEN, STEEP])
def test_a_round_tells_what_every_smaller_tree_would_have_accepted(chances: Sequence[float]) -> None:
    expected = taught(chances, 16).expected()
    for width, tokens in zip(WIDTHS, expected, strict=True):
        assert tokens == pytest.approx(1 + sum(chances[: width - 1]), rel=0.1)


def test_rows_that_nobody_has_seen_are_hoped_for_and_no_more_than_those_before() -> None:
    fresh, narrow = NodeAcceptance(WIDTHS), taught(STEEP, 8).expected()
    fresh.join(1, None)
    hopes = fresh.expected()
    assert 1 == hopes[0] < hopes[1] < hopes[2] < hopes[3]
    assert narrow[2] < narrow[3] < narrow[2] + 0.3


def test_a_request_commits_no_more_than_it_may() -> None:
    acceptance = taught(EVEN, 16)
    acceptance.leave(7)
    acceptance.join(1, None, left=3)
    assert max(acceptance.expected()) == pytest.approx(3.0)
    acceptance.leave(1)
    acceptance.join(2, 0)
    assert acceptance.expected() == [1.0] * 4


def test_what_the_last_round_of_a_request_accepted_says_nothing() -> None:
    acceptance = taught(EVEN, 16)
    before = list(acceptance.expected())
    acceptance.observe(7, 15, 0, True, [])
    assert acceptance.expected() == before


@pytest.mark.parametrize(("chances", "best"), [(EVEN, 16), (STEEP, 4), ((0.02,) * 15, 1)])
def test_the_policy_comes_to_the_number_of_nodes_that_pays(chances: Sequence[float], best: int) -> None:
    """A node adds a tenth of what a plain round takes."""
    micros = {(1, width): 1000.0 + 100.0 * (width - 1) for width in WIDTHS}
    policy, dice = adaptive_policy(WIDTHS, (1,), micros, nodes=True), random.Random(2)
    policy.join(1, None)
    chosen = []
    for _ in range(600):
        chosen.append(width := policy.choose(1, 1))
        path = path_of(dice, chances, width)
        policy.observe(1, width - 1, len(path), False, path)
        policy.landed(1, width, 1 + len(path), micros[1, width])
    assert chosen[300:].count(best) > 240
