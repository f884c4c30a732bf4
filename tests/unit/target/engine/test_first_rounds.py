"""A drafter whose first rounds are hardly ever right is told of once for each attachment."""

import logging

import pytest

from services.target.engine.meter import REMEDY, ROUNDS, FirstRounds


def _warned(caplog: pytest.LogCaptureFixture, reads: bool, rounds: list[tuple[int, int, int]]) -> list[int]:
    """The generations that were warned of, after rounds of (generation, drafted, accepted)."""
    first = FirstRounds(reads)
    with caplog.at_level(logging.WARNING):
        for told in rounds:
            first.note(*told)
    return [vars(record)["generation"] for record in caplog.records if record.message == REMEDY]


@pytest.mark.parametrize(
    ("reads", "rounds", "expected"),
    [
        (True, [(1, 14, 0)] * ROUNDS, [1]),
        (True, [(1, 14, 0)] * (ROUNDS - 1), []),
        (True, [(1, 14, 0)] * 10 * ROUNDS, [1]),
        (True, [(1, 20, 1)] * ROUNDS, []),
        (True, [(1, 21, 1)] * ROUNDS, [1]),
        (True, [(1, 0, 0)] * ROUNDS + [(1, 14, 3)] * ROUNDS, []),
        (True, [(1, 14, 0)] * 40 + [(2, 14, 0)] * 40, []),
        (True, [(1, 14, 9)] * ROUNDS + [(2, 14, 0)] * ROUNDS, [2]),
        (False, [(1, 14, 0)] * ROUNDS, []),
    ],
)
def test_it_is_told_once(
    caplog: pytest.LogCaptureFixture, reads: bool, rounds: list[tuple[int, int, int]], expected: list[int]
) -> None:
    assert _warned(caplog, reads, rounds) == expected
