"""Numbers of attachments: their flags have one owner at a time."""

import pytest

from services.common.request.errors import PacelineError
from services.target.drafting.generations import Generations

PAIRS = 4


def test_numbers_ascend_and_pass_over_flags_that_are_owned() -> None:
    generations = Generations(PAIRS)
    taken = [generations.take(by_flags=True) for _ in range(PAIRS)]
    assert taken == [1, 2, 3, 4]
    generations.free(3)
    assert generations.take(by_flags=True) == 7, "5 and 6 would write the flags of 1 and 2, which may live"


def test_none_is_given_while_every_owner_may_live() -> None:
    generations = Generations(PAIRS)
    taken = [generations.take(by_flags=True) for _ in range(PAIRS)]
    with pytest.raises(PacelineError, match="no flags are left"):
        generations.take(by_flags=True)
    generations.free(taken[1])
    assert generations.take(by_flags=True) % PAIRS == taken[1] % PAIRS


def test_without_flags_nothing_is_owned() -> None:
    generations = Generations(PAIRS)
    assert [generations.take(by_flags=False) for _ in range(9)] == list(range(1, 10))
