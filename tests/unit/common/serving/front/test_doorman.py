"""Connections and calls are bounded: of a tenant by its name, of strangers by their address."""

from __future__ import annotations

import resource
from typing import Any, cast

import pytest

from services.common.serving.front import doorman
from services.common.serving.front.allowance import MOST_NAMES, Allowance, Allowances
from services.common.serving.front.doorman import REFUSALS, STRANGERS, Doorman
from services.common.serving.front.frames import ProtocolError

KEY = [(b"authorization", b"Bearer key")]


class FakeRelay:
    """What a doorman asks of a relay."""

    def __init__(self, address: str = "a", heard: float = 0.0) -> None:
        self.address, self.heard, self.known, self.refusals, self.ended = address, heard, False, 0, False
        self.proven, self.claim = True, doorman.UNUSED

    def abort(self) -> None:
        self.ended = True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(keys: bool = True) -> tuple[Doorman, Clock]:
    clock = Clock()
    return Doorman({"key": "tenant"}.get if keys else None, clock), clock


def relay(address: str = "a", heard: float = 0.0, claim: int = doorman.UNUSED) -> Any:
    made = FakeRelay(address, heard)
    made.claim = claim
    return cast(Any, made)


def test_of_strangers_of_one_address_the_quietest_goes_for_a_new_one() -> None:
    found, _ = made()
    theirs = [relay(heard=float(number)) for number in range(STRANGERS)]
    assert all(found.enter(each) for each in theirs)
    assert found.enter(relay())
    assert [each.ended for each in theirs] == [True] + [False] * (STRANGERS - 1)
    assert found.enter(relay("b"))
    assert len(found.relays) == STRANGERS + 1


def test_a_small_listener_keeps_half_of_its_room_for_other_addresses() -> None:
    found = Doorman(None, Clock(), 8)
    theirs = [relay(heard=float(number)) for number in range(20)]
    assert all(found.enter(each) for each in theirs)
    assert len(found.relays) == 4
    assert found.enter(relay("b"))


def test_nobody_goes_for_a_new_one_while_all_are_busy() -> None:
    found, clock = made()
    assert all(found.enter(relay(heard=clock.now, claim=doorman.BUSY)) for _ in range(STRANGERS))
    assert not found.enter(relay())
    assert found.enter(relay("b"))


@pytest.mark.parametrize("keys", [True, False])
def test_a_connection_without_a_call_goes_at_any_age_and_none_that_has_one_goes_for_it(keys: bool) -> None:
    found, clock = made(keys)
    most = STRANGERS if keys else doorman.CONNECTIONS // 2
    served = relay(heard=0.0, claim=doorman.BUSY)
    unread = relay(heard=clock.now - 0.5, claim=doorman.UNREAD)
    idle = [relay(heard=clock.now) for _ in range(most - 2)]
    for each in (served, unread, *idle):
        assert found.enter(each)
    assert all(found.enter(relay(heard=clock.now)) for _ in range(500))
    assert idle[0].ended
    assert not served.ended
    assert not unread.ended


def test_whoever_has_shown_a_key_stays_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorman, "most_connections", lambda: 3)
    found, _ = made()
    known, stranger = relay(), relay("b", 1.0)
    for each in (known, stranger, relay("c", 2.0)):
        assert found.enter(each)
    assert found.judge(known, KEY) == 0.0
    assert found.enter(relay("d"))
    assert stranger.ended
    assert not known.ended


@pytest.mark.parametrize("claim", [doorman.UNUSED, doorman.BUSY])
def test_where_all_seats_are_taken_the_address_that_has_most_makes_room(claim: int) -> None:
    """As on a port of health: calls that stay open from a few addresses must not keep a probe out."""
    clock = Clock()
    found = Doorman(None, clock, 8, probes=True)
    probe = relay("node", heard=1.0)
    assert found.enter(probe)
    many = [relay(f"pod-{number % 3}", clock.now, claim) for number in range(40)]
    assert all(found.enter(each) for each in many)
    assert found.enter(relay("another node"))
    assert not probe.ended
    assert len(found.relays) == 8


def test_calls_and_connections_of_probes_are_few_of_each_address() -> None:
    found = Doorman(None, Clock(), 64, probes=True)
    one = relay()
    found.enter(one)
    waits = [found.judge(one, []) for _ in range(200)]
    assert waits[0] == 0.0
    assert waits[-1] > 2.0
    assert found.patience(one) == doorman.LONGEST_S
    assert found.patience(relay("b")) == 0.0


def test_a_connection_ends_after_some_calls_without_a_key() -> None:
    found, clock = made()
    one = relay()
    found.enter(one)
    for _ in range(REFUSALS):
        found.judge(one, [])
        clock.now += 10.0
    with pytest.raises(ProtocolError):
        found.judge(one, [(b"authorization", b"Bearer other")])


def test_calls_of_strangers_wait_by_address_and_no_tenant_waits_for_them() -> None:
    found, _ = made()
    strangers = [relay() for _ in range(8)]
    for each in (*strangers, other := relay("b"), mine := relay()):
        found.enter(each)
    waits = [found.judge(strangers[number % 8], []) for number in range(200)]
    assert waits[0] == 0.0
    assert waits[-1] > 2.0
    assert found.judge(other, []) == 0.0
    assert found.judge(mine, KEY) == 0.0


def test_headers_that_expand_count_as_several_calls() -> None:
    found, _ = made()
    one, two = relay(), relay()
    found.enter(one), found.enter(two)
    plain = next(number for number in range(1000) if found.judge(one, KEY) > 0)
    found, _ = made()
    large = next(number for number in range(1000) if found.judge(two, [*KEY, (b"x", b"y" * 60_000)]) > 0)
    assert large * 6 < plain


def test_where_nobody_needs_a_key_calls_count_by_address() -> None:
    found, _ = made(keys=False)
    one = relay()
    found.enter(one)
    waits = [found.judge(one, []) for _ in range(2000)]
    assert waits[0] == 0.0
    assert waits[-1] > 1.0
    assert one.known
    assert one.refusals == 0


def test_connections_leave_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in (
        (1024, 128),
        (1 << 20, doorman.CONNECTIONS),
        (resource.RLIM_INFINITY, doorman.CONNECTIONS),
        (4, 1),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert doorman.most_connections() == most


def test_who_sent_what_no_client_sends_is_heard_later_and_nobody_waits_long() -> None:
    found, _ = made()
    one = relay()
    assert found.patience(one) == 0.0
    for _ in range(100):
        found.blame(one)
    assert found.patience(one) == doorman.LONGEST_S
    assert found.patience(relay("b")) == 0.0
    assert found.judge(one, KEY) == 0.0


def test_an_allowance_comes_back_with_time() -> None:
    clock = Clock()
    one = Allowance(10.0, 5.0, clock)
    assert [one.take() for _ in range(6)] == pytest.approx([0.0] * 5 + [0.1])
    clock.now += 100.0
    assert [one.take() for _ in range(6)] == pytest.approx([0.0] * 5 + [0.1])


def test_allowances_of_many_names_are_forgotten() -> None:
    clock = Clock()
    many = Allowances(1.0, 1.0, clock)
    many.take("first")
    assert many.take("first") > 0
    for number in range(MOST_NAMES):
        many.take(str(number))
    assert many.take("first") == 0.0
