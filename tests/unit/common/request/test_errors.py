"""Typed errors and what becomes of them on the wire."""

import pytest

from services.common.pb.paceline.v1 import types_pb2
from services.common.request.error_convert import duration, from_pb, from_status, to_pb, to_status
from services.common.request.errors import (
    Code,
    PacelineError,
    Reason,
    context_limit,
    invalid_field,
    overloaded,
    protocol,
)
from tests.support.cases import each

EXAMPLES = [
    invalid_field("sampling.temperature", "must be in [0, 2]"),
    overloaded("too many requests", 1.25),
    context_limit("prompt", "holds 9 tokens of 8"),
    protocol(1, 2),
    PacelineError(Code.UNAVAILABLE, Reason.TARGET_LOST, "gone", retry_after_s=0.0),
]


def same(left: PacelineError, right: PacelineError) -> bool:
    return vars(left) == vars(right)


def test_every_reason_is_on_the_wire_and_the_other_way_round() -> None:
    wire = {name.removeprefix("ERROR_REASON_") for name in types_pb2.ErrorReason.DESCRIPTOR.values_by_name} - {
        "UNSPECIFIED"
    }
    assert wire == {reason.value for reason in Reason}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.reason.value)
def test_an_error_survives_both_forms(error: PacelineError) -> None:
    assert same(from_pb(to_pb(error)), error)
    assert same(from_status(to_status(error)), error)


@each("reason", list(Reason))
def test_every_reason_survives(reason: Reason) -> None:
    error = PacelineError(Code.ABORTED, reason, "words")
    assert same(from_pb(to_pb(error)), error)
    assert same(from_status(to_status(error)), error)


def test_an_error_of_a_newer_peer_is_internal() -> None:
    strange = to_pb(EXAMPLES[0])
    strange.code = 99
    strange.reason = 98  # type: ignore[assignment]
    assert from_pb(strange).code is Code.INTERNAL
    assert from_pb(strange).reason is Reason.INTERNAL


def test_a_field_is_named_for_people_and_for_machines() -> None:
    assert EXAMPLES[0].field == "sampling.temperature"
    assert str(EXAMPLES[0]).startswith("sampling.temperature: ")


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.0, 3600.5])
def test_durations_are_exact_to_a_microsecond(seconds: float) -> None:
    assert duration(seconds).ToTimedelta().total_seconds() == pytest.approx(seconds, abs=1e-6)
