"""Samples of crossed parameters have each value, and no case that brings nothing new."""

from itertools import product

from tests.support.covering import covering


def test_each_value_of_each_parameter_is_there() -> None:
    cases = [(str(rows), kind, flag) for rows, kind, flag in product(range(5), "abc", ("yes", "no"))]
    chosen = [cases[place] for place in covering(cases)]
    assert len(chosen) == 5
    for place in range(3):
        assert {case[place] for case in chosen} == {case[place] for case in cases}


def test_what_is_not_crossed_stays_whole() -> None:
    cases = [(str(place),) for place in range(7)]
    assert covering(cases) == [*range(7)]
    assert covering([("",)]) == [0]


def test_the_same_value_of_two_parameters_counts_twice() -> None:
    assert covering([("a", "b"), ("b", "a"), ("a", "a"), ("b", "b")]) == [0, 1]
