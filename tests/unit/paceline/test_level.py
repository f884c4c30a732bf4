"""What requests come to."""

import threading

import pytest

from paceline.load.level import measure, percentile
from paceline.load.sample import FailedError, Job, Sample


class Held:
    """An endpoint that answers when as many ask as should ask at once."""

    def __init__(self, at_once: int) -> None:
        self._together = threading.Barrier(at_once, timeout=30.0)

    def ask(self, job: Job) -> Sample:
        self._together.wait()
        if job.prompt == "bad":
            raise FailedError("refused")
        return Sample(0.1, 1.0, 10)


def test_as_many_run_at_once_as_asked() -> None:
    level = measure(Held(4), [Job("x", 10)] * 8, 4)
    assert (level.requests, level.failed, level.tokens) == (8, 0, 80)
    assert level.ttft_p50_ms == level.ttft_p99_ms == pytest.approx(100.0)
    assert level.itl_p50_ms == pytest.approx(100.0)
    assert level.tok_s == pytest.approx(80 / level.wall_s)


def test_what_failed_is_counted_and_told_and_does_not_count_as_fast() -> None:
    level = measure(Held(2), [Job("bad", 10), Job("x", 10)], 2)
    assert (level.failed, level.tokens, level.error) == (1, 10, "refused")


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile([], 50)) == (50.0, 99.0, 0.0)


def test_one_token_has_no_time_between() -> None:
    assert Sample(0.1, 0.1, 1).gap_s is None
