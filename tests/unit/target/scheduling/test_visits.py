"""Visits tell what a width costs among its like: a single round of it has the clock of the others."""

from math import exp

import pytest

from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from services.target.scheduling.width.visits import RUN, SHORT_RUN, Visit
from tests.unit.target.scheduling.acceptance_profiles import P65, conditional
from tests.unit.target.scheduling.served_loads import BUCKETS, Drafter, Served, fresh_policy

WIDTHS = (1, 4, 6, 8, 12)
MICROS = {(bucket, width): 7000.0 + 12.0 * bucket * width for bucket in BUCKETS for width in WIDTHS}
HEAT = {(bucket, width): share for bucket in BUCKETS for width, share in ((8, 0.08), (12, 0.12))}


def visited(own: list[float], after: list[float], growth: float = 0.0) -> Visit:
    """A visit of width 4 from 8, whose rounds before took 1,000; all rounds grow by a share of that one by one."""
    visit = Visit(4, 8, [1000.0 * (1.0 + growth * (place - RUN)) for place in range(RUN)])
    while visit.next() is not None:
        pass
    visit.landed(8, 1000.0)
    for place, micros in enumerate((*own, *after)):
        visit.landed(4 if place < RUN else 8, micros * (1.0 + growth * place))
    return visit


def test_a_run_at_the_width_is_followed_by_one_at_home() -> None:
    visit = Visit(4, 8, [1000.0] * RUN)
    assert [visit.next() for _ in range(2 * RUN + 1)] == [4] * RUN + [8] * RUN + [None]
    assert not visit.ended


def test_the_second_half_of_each_run_counts() -> None:
    half = RUN // 2
    visit = visited([900.0] * half + [700.0] * half, [900.0] * half + [1000.0] * half)
    assert visit.ended
    assert exp(visit.dearer() or 0.0) == pytest.approx(0.7)


def test_what_contexts_grow_by_meanwhile_is_no_difference() -> None:
    grown = visited([700.0] * RUN, [1000.0] * RUN, growth=0.001)
    assert exp(grown.dearer() or 0.0) == pytest.approx(0.7, rel=0.003)


def test_rounds_that_were_not_measured_tell_nothing() -> None:
    visit = Visit(4, 8, [1000.0] * RUN)
    for place in range(2 * RUN):
        visit.landed(4 if place < RUN else 8, None if place % 16 > 10 else 1000.0)
    assert visit.ended
    assert visit.dearer() is None


def test_of_a_short_run_all_but_the_first_round_count() -> None:
    visit = Visit(4, 8, [1000.0] * RUN, SHORT_RUN)
    assert [visit.next() for _ in range(2 * SHORT_RUN + 1)] == [4] * SHORT_RUN + [8] * SHORT_RUN + [None]
    for place in range(2 * SHORT_RUN):
        visit.landed(4 if place < SHORT_RUN else 8, 9000.0 if place % SHORT_RUN == 0 else 1000.0 - 300.0 * (place < 8))
    assert visit.ended
    assert exp(visit.dearer() or 0.0) == pytest.approx(0.7)


@pytest.mark.parametrize(("rounds", "tells"), [(4, False), (5, True)])
def test_a_visit_that_was_cut_tells_what_it_measured(rounds: int, tells: bool) -> None:
    visit = Visit(4, 8, [1000.0] * RUN, SHORT_RUN)
    for _ in range(rounds):
        visit.landed(4, 700.0)
    dearer = visit.dearer()
    assert (dearer is not None) == tells
    assert dearer is None or exp(dearer) == pytest.approx(0.7)


def speed(policy: WidthPolicy, loads: int) -> float:
    """Tokens a microsecond of the last of some loads."""
    served = Served(policy, MICROS, Drafter([(chance,) for chance in conditional(P65)]), 7, HEAT)
    return 128 * 512 / [served.load(128, 512) for _ in range(loads)][-1]


def test_a_width_that_lowers_the_clock_is_left() -> None:
    """A round eight wide is the best one at the clock of six, and the worse one at its own."""
    alone = {width: (1.0 + sum(P65[: width - 1])) / MICROS[128, width] for width in (6, 8)}
    six, eight = (speed(FixedWidth(width), 1) for width in (6, 8))
    assert alone[8] > alone[6]
    assert six > 1.05 * eight
    chosen = speed(fresh_policy(WIDTHS, MICROS), 4)
    print(f"chosen / six = {chosen / six:.4f}, eight / six = {eight / six:.4f}")
    assert chosen > 0.98 * six
