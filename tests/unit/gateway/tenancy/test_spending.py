"""Tokens of the last minute."""

from services.gateway.tenancy.spending import Spending


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_tokens_are_forgotten_when_they_are_a_minute_old() -> None:
    clock = Clock()
    spending = Spending(clock)
    for second in range(90):
        clock.now = 1000.0 + second
        spending.spend(10)
        assert spending.used == 10 * min(second + 1, 61)
    clock.now += 61
    assert spending.used == 0


def test_no_minute_counts_less_than_what_was_spent_in_it() -> None:
    clock = Clock()
    spending = Spending(clock)
    clock.now = 1000.9
    spending.spend(7)
    clock.now += 59.99
    assert spending.used == 7


def test_what_is_reserved_counts_and_never_ages() -> None:
    clock = Clock()
    spending = Spending(clock)
    spending.reserved += 100
    clock.now += 1000
    assert spending.used == 100


def test_room_is_told_for_when_enough_is_old() -> None:
    clock = Clock()
    spending = Spending(clock)
    spending.spend(5)
    clock.now = 1010.0
    spending.spend(5)
    assert spending.frees_s(5) == 51.0
    assert spending.frees_s(6) == 61.0
    assert spending.frees_s(11) == 60.0
