"""What a controller counts: the state of each pair, restarts, places."""

from dataclasses import replace
from typing import get_args

from prometheus_client import CollectorRegistry

from deploy.cluster.meter import PairMeter
from deploy.cluster.registry import PairEntry, State
from services.common.metrics.catalogue import PAIR_STATES, PairMetrics
from tests.support.metrics import value_of

READY = PairEntry("p", "127.0.0.1:1", "m", "ready")


def test_a_pair_is_in_one_state() -> None:
    pairs = PairMetrics.each(CollectorRegistry(), "m", ["p"])
    meter = PairMeter(pairs["p"])
    for state in get_args(State):
        meter.announced(replace(READY, state=state))
        assert {other: value_of(pairs["p"].cluster_pairs[other]) for other in PAIR_STATES} == {
            other: float(other == state) for other in PAIR_STATES
        }


def test_restarts_count_each_service_and_each_restart_once() -> None:
    pairs = PairMetrics.each(CollectorRegistry(), "m", ["p"])
    meter = PairMeter(pairs["p"])
    for target, drafter in ((0, 0), (1, 0), (1, 2), (1, 2)):
        meter.announced(replace(READY, target_restarts=target, drafter_restarts=drafter))
    counted = pairs["p"].cluster_restarts
    assert (value_of(counted["target"]), value_of(counted["drafter"])) == (1, 2)


def test_places_and_what_kept_a_pair_from_one_are_counted() -> None:
    pairs = PairMetrics.each(CollectorRegistry(), "m", ["p"])
    meter = PairMeter(pairs["p"])
    meter.failed("no_room")
    meter.placed()
    meter.failed("straddled")
    meter.placed()
    assert value_of(pairs["p"].cluster_placements) == 2
    assert [value_of(pairs["p"].cluster_failures[reason]) for reason in ("no_room", "straddled")] == [1, 1]
