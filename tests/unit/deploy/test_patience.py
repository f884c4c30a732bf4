"""When a service is restarted for its own good, and when its pair is given up."""

from dataclasses import replace

import pytest

from deploy.cluster.failure import Failure
from deploy.cluster.patience import Limits, Patience, Restarts
from deploy.cluster.report import ActorReport, Answer, Missing
from services.common.serving.server import Bound

LOADING = ActorReport(7, Bound("h:1", "h:2", "h:3"), False, (), "none")
SERVING = replace(LOADING, ready=True)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock: Clock) -> Patience:
    return Patience(Limits(startup_s=1800.0, stuck_s=30.0), clock)


@pytest.mark.parametrize("answer", [LOADING, Missing.SILENT, Missing.GONE])
def test_a_service_that_starts_has_the_startup_budget(patience: Patience, clock: Clock, answer: Answer) -> None:
    clock.now = 1799.0
    assert [patience.look(answer) for _ in range(10)] == [""] * 10
    clock.now = 1800.0
    assert patience.look(answer) == "it is not ready after 1800 s"


def test_one_that_serves_may_miss_two_reads_and_not_three(patience: Patience) -> None:
    answers: list[Answer] = [SERVING, Missing.SILENT, Missing.SILENT, SERVING, Missing.SILENT, Missing.SILENT]
    assert [patience.look(answer) for answer in answers] == [""] * 6
    assert patience.look(Missing.SILENT) == "3 health reads failed"


def test_an_answer_that_is_awaited_is_no_failed_read(patience: Patience) -> None:
    patience.look(SERVING)
    assert [patience.look(Missing.UNASKED) for _ in range(10)] == [""] * 10


def test_an_engine_may_stand_still_for_less_than_half_a_minute(patience: Patience) -> None:
    assert patience.look(replace(SERVING, still_s=29.0)) == ""
    assert patience.look(replace(SERVING, still_s=30.4)) == "its engine has finished no turn for 30 s"


@pytest.mark.parametrize("seen_gone", [True, False])
def test_one_that_ray_begins_again_has_the_startup_budget_anew(
    patience: Patience, clock: Clock, seen_gone: bool
) -> None:
    patience.look(SERVING)
    clock.now = 1700.0
    answers: list[Answer] = [*[Missing.GONE] * 3 * seen_gone, replace(LOADING, pid=8), *[Missing.SILENT] * 5]
    assert [patience.look(answer) for answer in answers] == [""] * len(answers)
    clock.now = 3499.0
    assert patience.look(replace(LOADING, pid=8)) == ""
    clock.now = 3500.0
    assert patience.look(replace(LOADING, pid=8))


def test_what_was_refused_for_good_is_not_tried_again(patience: Patience, clock: Clock) -> None:
    clock.now = 5000.0
    assert patience.look(replace(LOADING, failure=Failure("damaged", True))) == ""
    assert patience.look(replace(LOADING, failure=Failure("out of memory", False)))


def test_five_restarts_within_half_an_hour_are_borne_and_a_sixth_is_not(clock: Clock) -> None:
    restarts = Restarts(limit=5, window_s=1800.0, clock=clock)
    seen = []
    for total in range(7):
        clock.now = total * 100.0
        seen.append(restarts.exceeded(total))
    assert seen == [False] * 6 + [True]


def test_restarts_of_long_ago_do_not_count(clock: Clock) -> None:
    restarts = Restarts(limit=5, window_s=1800.0, clock=clock)
    for total in range(30):
        clock.now = total * 361.0
        assert not restarts.exceeded(total)
    assert restarts.exceeded(35)
