"""Chats meet their pair whatever gateway their turns go through, and pairs stay about equally full."""

import pytest

from tests.unit.gateway.routing.simulated_fleet import Kind, simulate

SEED = 20260101


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("gateways", [1, 2, 10])
def test_turns_meet_their_pair(gateways: int, restarts: bool, full: bool) -> None:
    """Few chats for each pair spread worse: so the bound on the fullest holds of many."""
    pairs, chats = (100, 30_000) if full else (20, 1_600)
    outcome = simulate(gateways, pairs, chats, 0.6, SEED, restarts)
    assert outcome.met >= 0.94, outcome
    assert outcome.spread <= 1.25, outcome


@pytest.mark.parametrize(
    ("kind", "gateways"),
    [(Kind(system=4), 2), (Kind(system=4, own=0, named=True), 2)],
    ids=["a system prompt", "short questions behind it"],
)
def test_chats_that_begin_alike_meet_their_pair_too(kind: Kind, gateways: int, full: bool) -> None:
    pairs, chats = (100, 30_000) if full else (20, 2_400)
    outcome = simulate(gateways, pairs, chats, 0.6, SEED, kind=kind)
    assert outcome.met >= 0.94, outcome
    assert outcome.spread <= 1.25, outcome
