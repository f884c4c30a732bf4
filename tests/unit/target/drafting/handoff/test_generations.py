"""Numbers of attachments: their flags have one owner at a time."""

import pytest

from services.common.request.errors import PacelineError
from services.target.drafting.handoff.generations import FlagGenerations, Generations

PAIRS = 4


def test_numbers_ascend_and_pass_over_flags_that_are_owned() -> None:
    generations = FlagGenerations(PAIRS)
    taken = [generations.take() for _ in range(PAIRS)]
    assert taken == [1, 2, 3, 4]
    generations.free(3)
    assert generations.take() == 7, "5 and 6 would write the flags of 1 and 2, which may live"


def test_none_is_given_while_every_owner_may_live() -> None:
    generations = FlagGenerations(PAIRS)
    taken = [generations.take() for _ in range(PAIRS)]
    with pytest.raises(PacelineError, match="no flags are left"):
        generations.take()
    generations.free(taken[1])
    assert generations.take() % PAIRS == taken[1] % PAIRS


def test_an_attachment_that_is_over_frees_its_flags_if_its_drafter_is_gone() -> None:
    generations = FlagGenerations(PAIRS)
    taken = [generations.take() for _ in range(PAIRS)]
    for generation in taken:
        generations.end(generation, lambda gone=generation == 2: gone)  # type: ignore[misc]
    assert generations.take() % PAIRS == 2
    with pytest.raises(PacelineError):
        generations.take()


def test_without_flags_nothing_is_owned() -> None:
    generations = Generations()
    assert [generations.take() for _ in range(9)] == list(range(1, 10))
