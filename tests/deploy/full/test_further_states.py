"""Failures of one part of a release, and what looks like one and is none; each judged with every alert beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.full.states import (
    BEGIN,
    END,
    FIRST,
    GATEWAYS,
    PAIRS,
    State,
    growing,
    level,
    name,
    of,
    refused,
    spread,
)
from tests.deploy.full.test_states import REST, asks, judged, pair_states, per_pair

pytestmark = pytest.mark.timeout(600)


def late(share: float) -> dict[str, str]:
    """First tokens of which such a share comes within a second, and all others within 2.5."""
    shares = {"0.1": 0.0, "1": share, "2.5": 1.0, "+Inf": 1.0}
    assert shares.keys() == FIRST.keys()
    return {
        each: values
        for gateway in GATEWAYS
        for each, values in spread("time_to_first_token", FIRST, f'instance="{gateway}"', 60, shares).items()
    }


def blocks(owned: float) -> dict[str, str]:
    """Blocks of one pair: those owned from `BEGIN` on, and the rest free."""
    found = {"owned": (500, owned), "free": (3000, 4000 - owned), "cached": (500, 0)}
    return {
        per_pair("paceline_kv_blocks", "p0", f'state="{state}"'): level((before, BEGIN), (after, REST))
        for state, (before, after) in found.items()
    }


def accepted(share: float) -> dict[str, str]:
    """What is accepted of drafts from `BEGIN` on."""
    return {
        per_pair("paceline_spec_decode_num_accepted_tokens_total", pair): growing((12e3, BEGIN), (18e3 * share, REST))
        for pair in PAIRS
    }


def overloaded(a_minute: float) -> dict[str, str]:
    """Requests that gateways refuse for want of room."""
    return {refused("OVERLOADED", f'instance="{each}"'): growing((0, BEGIN), (a_minute, REST)) for each in GATEWAYS}


def expires(days: float) -> dict[str, str]:
    """A certificate that ends so many days after the state begins to differ."""
    return {
        of("paceline_certificate_expiry_timestamp_seconds", 'file="tls.crt"'): level((days * 86400 + BEGIN * 60, END))
    }


def handed(mode: str) -> dict[str, str]:
    """A pair hands drafts over in another mode than it wants."""
    other = {"flags_mps": int(mode != "host"), "host": int(mode == "host")}
    return {
        per_pair("paceline_handoff_mode", "p0", f'mode="{each}"'): level((int(each != "host"), BEGIN), (value, REST))
        for each, value in other.items()
    }


def once(metric: str, pair: str, *labels: str) -> dict[str, str]:
    """A counter that moves one time."""
    return {per_pair(metric, pair, *labels): level((0, BEGIN), (1, REST))}


def again_and_again(metric: str, pair: str, minutes: float) -> dict[str, str]:
    """A counter that moves each so many minutes."""
    turns = int(REST / minutes)
    return {per_pair(metric, pair): level((1, BEGIN), *((2 + turn, minutes) for turn in range(turns)))}


FAILURES = [
    State("a pair has no blocks left", blocks(3900), frozenset({"PacelineKvNearlyFull"})),
    State("one first token in four takes two seconds", late(0.75), frozenset({"PacelineSlowFirstToken"})),
    State(
        "gateways refuse for want of room",
        overloaded(10) | asks("RESOURCE_EXHAUSTED", 0, 10),
        frozenset({"PacelineQueueSaturated"}),
    ),
    State("a certificate ends in five days", expires(5), frozenset({"PacelineCertificateExpiry"})),
    State("a drafter is another model's", accepted(0.02), frozenset({"PacelineAcceptanceCollapse"})),
    State("a pair hands over by the host", handed("host"), frozenset({"PacelineHostFallback"})),
    State(
        "graphs are captured again",
        {per_pair("paceline_graph_recaptures_total", "p0"): growing((0, BEGIN), (1, REST))},
        frozenset({"PacelineRecapture"}),
    ),
    State("one request meets a defect", asks("INTERNAL", 0, 0.01), frozenset({"PacelineInternalErrors"})),
    State(
        "one answer in ten fails",
        asks("OK", 60, 54) | asks("UNAVAILABLE", 0, 6),
        frozenset({"PacelineErrorBudgetBurn", "PacelineErrorBudgetSlowBurn"}),
    ),
    State(
        "a controller gives a pair up",
        pair_states("p1", ready=((1, BEGIN), (0, REST)), failed=((0, BEGIN), (1, REST)))
        | {per_pair("paceline_ready", "p1"): level((1, BEGIN), (0, REST))},
        frozenset({"PacelinePairFailed"}),
    ),
    State(
        "a drafter dies every two minutes",
        again_and_again("paceline_drafter_attaches_total", "p0", 2),
        frozenset({"PacelineRestartLoop"}),
    ),
    State(
        "a list of pairs comes no more",
        {
            of("paceline_gateway_fleet_sources", f'instance="{each}"', 'state="stale"'): level((0, BEGIN), (1, REST))
            for each in GATEWAYS
        },
        frozenset({"PacelineFleetSourceStale"}),
    ),
]

SILENCE = [
    State("blocks are owned to nine tenths", blocks(3600)),
    State("one first token in thirty takes two seconds", late(0.97)),
    State("a certificate ends in a month", expires(31)),
    State("a text is harder to draft", accepted(0.45)),
    State("a drafter dies once", once("paceline_drafter_attaches_total", "p0")),
    State("a target dies once", once("paceline_cluster_restarts_total", "p0", 'service="target"')),
    State("clients send what is invalid", asks("INVALID_ARGUMENT", 0, 60)),
    State("one key in a hundred is wrong", asks("UNAUTHENTICATED", 0, 0.6)),
    State("one request in a hundred misses its deadline", asks("DEADLINE_EXCEEDED", 0, 0.6)),
    State(
        "a gateway lost its list for three minutes",
        {of("paceline_gateway_fleet_sources", 'instance="g0"', 'state="stale"'): level((0, BEGIN), (1, 3), (0, REST))},
    ),
    State(
        "a batch comes each hour",
        {each: growing((60, BEGIN), (900, 10), (60, 50), (900, 10), (60, END)) for each in asks("OK", 0, 0)},
    ),
    State(
        "a process begins anew once",
        {name("process_start_time_seconds", 'instance="p0"'): level((0, BEGIN), (60 * BEGIN, REST))},
    ),
]


@pytest.mark.parametrize("state", FAILURES, ids=lambda state: state.says)
def test_a_failure_of_one_part_is_told_and_nothing_else(state: State, tmp_path: Path) -> None:
    assert judged(state, tmp_path / "state.test.yaml") == set(state.fires)


@pytest.mark.parametrize("state", SILENCE, ids=lambda state: state.says)
def test_nobody_is_woken_for_what_looks_like_a_failure(state: State, tmp_path: Path) -> None:
    assert judged(state, tmp_path / "state.test.yaml") == set()
