"""What the rounds of a target come to."""

import pytest

from services.gateway.targets.messages import PastRound
from services.gateway.targets.status import WINDOW_S, pace


def past(number: int, age_s: float, width: int = 4, requests: int = 2, accepted: int = 6) -> PastRound:
    return PastRound(number, width, requests, requests + accepted, accepted, age_s)


def test_without_rounds_all_is_zero() -> None:
    assert pace([]).tokens_per_second == pace([]).tokens_per_round == 0.0


def test_a_target_that_began_within_the_window_has_its_tokens_spread_over_all_of_it() -> None:
    found = pace([past(1, 0.3), past(2, 0.2), past(3, 0.1, width=1, requests=1, accepted=0)])
    assert found.tokens_per_second == pytest.approx((8 + 8 + 1) / WINDOW_S)
    assert found.tokens_per_round == pytest.approx(17 / 5)
    assert found.by_width == {4: 2, 1: 1}


def test_a_fast_target_keeps_rounds_of_less_than_the_window() -> None:
    found = pace([past(1001, 2.0), past(1002, 1.0), past(1003, 0.0)])
    assert found.tokens_per_second == pytest.approx(24 / 2.0)


def test_rounds_older_than_the_window_do_not_count() -> None:
    found = pace([past(7, 60.0), past(8, 59.0)])
    assert found.tokens_per_second == 0.0
    assert not found.rows and not found.by_width


def test_a_round_that_only_prefills_has_no_width() -> None:
    found = pace([PastRound(1, 1, 0, 1, 0, 1.0)])
    assert found.tokens_per_second == pytest.approx(1 / WINDOW_S)
    assert found.tokens_per_round == 0.0 and not found.by_width
