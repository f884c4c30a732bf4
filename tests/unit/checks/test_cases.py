"""Many cases in one test: all are run, what is asked of pytest stays, and the one that fails is named."""

from pathlib import Path

import pytest

from tests.support.cases import each


def test_every_case_of_every_list_is_run_once() -> None:
    seen: list[tuple[int, str]] = []

    @each("number", [1, 2])
    @each(("letter", "_"), [("a", 0), ("b", 0)])
    def check(number: int, letter: str, _: int) -> None:
        seen.append((number, letter))

    check()
    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


@each("failure", [AssertionError, ValueError])
def test_the_case_that_fails_is_named_and_is_the_last(failure: type[Exception]) -> None:
    seen: list[int] = []

    @each("number", [3, 5, 7])
    def check(number: int) -> None:
        seen.append(number)
        if number == 5:
            raise failure

    with pytest.raises(failure) as told:
        check()
    assert seen == [3, 5]
    assert told.value.__notes__ == ["case 1 of 3: {'number': 5}"]


def test_what_raises_nothing_where_it_must_is_named_too() -> None:
    @each("number", [0])
    def check(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            _ = number / 1

    with pytest.raises(pytest.fail.Exception) as told:
        check()
    assert told.value.__notes__ == ["case 0 of 1: {'number': 0}"]


def test_a_test_without_cases_is_refused() -> None:
    with pytest.raises(ValueError, match="no case of number"):
        each("number", [])


@each("number", [1, 2])
def test_fixtures_are_there_as_in_any_test(number: int, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    assert number in (1, 2)
