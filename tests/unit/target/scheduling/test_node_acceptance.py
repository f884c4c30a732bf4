"""What rounds of trees are expected to commit beside rounds of chains, and which of all the policy comes to."""

import random
from collections.abc import Sequence

import pytest

from services.target.core.width import Tree
from services.target.scheduling.width.node_acceptance import NodeAcceptance
from services.target.scheduling.width.width import adaptive_policy

WIDTHS = (1, 4, Tree(4), 8, Tree(8), 16, Tree(16))
CHAINS, TREES = slice(1, None, 2), slice(2, None, 2)
EVEN, STEEP = (0.8,) * 15, (0.7, 0.2, 0.1, 0.05, *[0.0] * 11)
"""Chances of each row to be on the accepted path."""


def path_of(dice: random.Random, chances: Sequence[float], width: int) -> list[int]:
    return [row for row in range(1, width) if dice.random() < chances[row - 1]]


def taught(chances: Sequence[float], nodes: int, rounds: int = 400) -> NodeAcceptance:
    dice, acceptance = random.Random(1), NodeAcceptance(WIDTHS)
    acceptance.join(7, None)
    for _ in range(rounds):
        path = path_of(dice, chances, nodes)
        acceptance.observe(7, nodes - 1, len(path), False, path, (1, 2))
    return acceptance


@pytest.mark.parametrize("chances", [EVEN, STEEP])
def test_a_round_tells_what_every_smaller_tree_would_have_accepted(chances: Sequence[float]) -> None:
    expected = taught(chances, 16).expected()[TREES]
    for nodes, tokens in zip((4, 8, 16), expected, strict=True):
        assert tokens == pytest.approx(1 + sum(chances[: nodes - 1]), rel=0.1)


def test_a_round_of_trees_tells_of_a_chain_s_first_drafts() -> None:
    """Of three first children one is accepted in each round, then the path leaves them."""
    acceptance = NodeAcceptance(WIDTHS)
    acceptance.join(7, None)
    for _ in range(400):
        acceptance.observe(7, 15, 3, False, (1, 4, 6), (1, 3, 5))
    four, eight, _ = acceptance.expected()[CHAINS]
    assert four == pytest.approx(2.0, abs=0.1)
    assert eight < four + 0.1


def test_what_chains_accept_now_scales_what_trees_accepted() -> None:
    """A tree of eight had 2.5 tokens a round where chains promised little. Another request's chain promises more."""
    acceptance, dice = NodeAcceptance(WIDTHS), random.Random(3)
    acceptance.join(1, None)
    for _ in range(200):
        first = dice.random() < 0.6
        acceptance.observe(1, 7, 1 + first, False, (1, 2) if first else (3,), (1, 2))
    acceptance.leave(1)
    acceptance.join(2, None)
    fresh = acceptance.expected()[WIDTHS.index(Tree(8))]
    for _ in range(60):
        acceptance.observe(2, 7, 4, False)
    assert acceptance.expected()[WIDTHS.index(Tree(8))] > fresh + 0.8


def test_rows_that_nobody_has_seen_are_hoped_for_and_no_more_than_those_before() -> None:
    fresh, narrow = NodeAcceptance(WIDTHS), taught(STEEP, 8).expected()[TREES]
    fresh.join(1, None)
    hopes = fresh.expected()
    for kind in (CHAINS, TREES):
        assert hopes[kind] == sorted(hopes[kind])
    for chain, tree in zip(hopes[CHAINS], hopes[TREES], strict=True):
        assert chain < tree < 1.2 * chain
    assert narrow[1] < narrow[2] < narrow[1] + 0.3


def test_a_lone_request_hopes_for_what_trees_bring_before_many_were_seen() -> None:
    """A tree of sixteen brings 3.4 tokens where its drafter's chain brings 2.7. A visit's eight rounds told too little
    of it, so a target kept to chains."""
    chances = (0.69, 0.48, 0.36, 0.25, 0.21, 0.16, 0.15, 0.12, 0.10, 0.09, 0.08, 0.07, 0.06, 0.06, 0.06)
    dice, told = random.Random(2), list[float]()
    for _ in range(32):
        acceptance = NodeAcceptance(WIDTHS)
        acceptance.join(7, None)
        for _ in range(40):
            accepted = next((row for row in range(15) if dice.random() >= 0.68), 15)
            acceptance.observe(7, 15, accepted, False)
        for _ in range(8):
            path = path_of(dice, chances, 16)
            acceptance.observe(7, 15, len(path), False, path, (1, 2))
        told.append(acceptance.expected()[-1])
    mean = sum(told) / len(told)
    print(f"told {mean:.2f} on average of {1 + sum(chances):.2f}")
    assert mean == pytest.approx(1 + sum(chances), rel=0.04)


def test_a_request_commits_no_more_than_it_may() -> None:
    acceptance = taught(EVEN, 16)
    acceptance.leave(7)
    acceptance.join(1, None, left=3)
    assert max(acceptance.expected()) == pytest.approx(3.0)
    acceptance.leave(1)
    acceptance.join(2, 0)
    assert acceptance.expected() == [1.0] * len(WIDTHS)


def test_of_many_requests_each_tells_in_its_turn_what_its_trees_accepted() -> None:
    """What all of them are expected to commit is what it would be if each told it in each round."""
    dice, acceptance = random.Random(4), NodeAcceptance(WIDTHS)
    for uid in range(64):
        acceptance.join(uid, None)
    for _ in range(60):
        for uid in range(64):
            path = path_of(dice, STEEP, 16)
            acceptance.observe(uid, 15, len(path), False, path, (1, 2))
    for nodes, tokens in zip((4, 8, 16), acceptance.expected()[TREES], strict=True):
        assert tokens / 64 == pytest.approx(1 + sum(STEEP[: nodes - 1]), rel=0.1)


def test_what_the_last_round_of_a_request_accepted_says_nothing_of_trees() -> None:
    acceptance = taught(EVEN, 16)
    before = list(acceptance.expected()[TREES])
    acceptance.observe(7, 15, 0, True, (), (1, 2))
    assert acceptance.expected()[TREES] == before


@pytest.mark.parametrize(("chances", "best"), [(EVEN, Tree(16)), (STEEP, Tree(4)), ((0.02,) * 15, 1)])
def test_the_policy_comes_to_the_number_of_nodes_that_pays(chances: Sequence[float], best: int) -> None:
    """A node adds a tenth of what a plain round takes. Chains accept what the first row tells, and no more."""
    micros = {(1, width): 1000.0 + 100.0 * (width - 1) for width in WIDTHS}
    policy, dice = adaptive_policy(WIDTHS, (1,), micros), random.Random(2)
    policy.join(1, None)
    chosen = []
    for _ in range(600):
        chosen.append(width := policy.choose(1, 1))
        path = path_of(dice, chances, width) if isinstance(width, Tree) else path_of(dice, chances, min(2, width))
        trunk = (1,) if isinstance(width, Tree) else ()
        policy.observe(1, width - 1, len(path), False, path if trunk else (), trunk)
        policy.landed(1, width, 1 + len(path), micros[1, width])
    assert chosen[300:].count(best) > 240
