"""What a sampled trace gets to see of a target."""

from collections.abc import Iterable, Mapping

import pytest
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import TargetMetrics
from services.common.request.sampling import SamplingParams, StopParams
from services.common.serving.tracing import Attributes, Event, NoTracer, Span
from services.target.cache.blocks import BlockPool
from services.target.core.plan import Commit, Progress
from services.target.core.request import Request, RequestSpec
from services.target.engine.ledger import TokenLedger
from services.target.engine.meter import Meter
from services.target.engine.recorder import RoundEntry
from services.target.engine.spans import MOST_EVENTS, Spans

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENTRY = RoundEntry(7, 8, 1, 3, 7, 2, 0, 100, 200, 50)


class Kept:
    active = True

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, int, Mapping[str, object]]] = []

        self.events: dict[str, list[Event]] = {}

    def begin(self, name: str, parent: str) -> Span:
        raise AssertionError("a target serves no calls of clients")

    def record(
        self,
        name: str,
        parent: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        events: Iterable[Event] = (),
    ) -> str:
        self.spans.append((name, parent, end_ns - start_ns, attributes or {}))
        self.events[name] = [*events]
        return f"{name} {len(self.spans)}"

    def close(self) -> None:
        return


def request(traceparent: str) -> Request:
    spec = RequestSpec("r", (1, 2), 2, SamplingParams(), StopParams(max_tokens=4), traceparent=traceparent)
    made = Request(1, spec, 0, 10.0, 8, frozenset(), (0.0, 0), [1, 2])
    made.admitted, made.first_token, made.ended = 10.5, 10.75, 12.75
    return made


def commit(one: Request) -> Commit:
    return Commit((Progress(one, 0, (1, 2, 3), None, 2, 7, 8, None),), 0)


def test_rounds_are_events_of_the_decode_as_far_as_a_span_keeps_them() -> None:
    kept = Kept()
    spans, one = Spans(kept), request(SAMPLED)
    for _ in range(MOST_EVENTS + 3):
        spans.round(ENTRY, commit(one))
    spans.ended(one, "length")
    assert [name for name, *_ in kept.spans] == ["paceline.queue", "paceline.prefill", "paceline.decode"]
    assert {name: len(told) for name, told in kept.events.items()} == {
        "paceline.queue": 0,
        "paceline.prefill": 0,
        "paceline.decode": MOST_EVENTS,
    }
    name, _, facts = kept.events["paceline.decode"][0]
    assert (name, facts["accepted"], facts["width"]) == ("paceline.round", 2, 8)
    spans.ended(one, "length")
    assert not kept.events["paceline.decode"], "they were told once"


def test_the_share_of_traces_with_spans_of_rounds_goes_by_the_id_of_the_trace() -> None:
    made = [
        f"00-0af7651916cd43dd8448eb21{number * 0x01000193 & 0xFFFFFFFF:08x}-b7ad6b7169203331-01"
        for number in range(400)
    ]
    with_spans = []
    for traceparent in made:
        kept = Kept()
        Spans(kept, rounds=0.25).round(ENTRY, commit(request(traceparent)))
        with_spans.append(bool(kept.spans))
    assert 60 <= sum(with_spans) <= 140


def test_a_sampled_request_has_its_rounds_and_its_three_parts() -> None:
    kept = Kept()
    spans, one = Spans(kept, rounds=1.0), request(SAMPLED)
    spans.round(ENTRY, commit(one))
    spans.ended(one, "length")
    inner = [(name, parent, lasting) for name, parent, lasting, _ in kept.spans[1:3]]
    assert inner == [("paceline.draft", "paceline.round 1", 100_000), ("paceline.verify", "paceline.round 1", 200_000)]
    del kept.spans[1:3]
    assert [name for name, *_ in kept.spans] == [
        "paceline.round",
        "paceline.queue",
        "paceline.prefill",
        "paceline.decode",
    ]
    assert {parent for _, parent, *_ in kept.spans} == {SAMPLED}
    assert kept.spans[0][2] == 350_000
    assert [lasting / 1e9 for _, _, lasting, _ in kept.spans[1:]] == pytest.approx([0.5, 0.25, 2.0], abs=1e-5)
    assert kept.spans[0][3]["accepted"] == 2


@pytest.mark.parametrize("traceparent", ["", SAMPLED[:-2] + "00"])
def test_others_leave_no_span(traceparent: str) -> None:
    kept = Kept()
    spans, one = Spans(kept), request(traceparent)
    spans.round(ENTRY, commit(one))
    spans.ended(one, "length")
    assert not kept.spans


def test_a_request_that_never_ran_has_no_parts() -> None:
    kept, one = Kept(), request(SAMPLED)
    one.admitted = one.first_token = None
    Spans(kept).ended(one, "deadline")
    assert not kept.spans
    Spans(NoTracer()).ended(one, "deadline")


def test_a_request_keeps_the_round_that_ends_it() -> None:
    """The round is told after the end: what it left is neither lost nor kept for ever."""
    kept = Kept()
    spans, one = Spans(kept), request(SAMPLED)
    metrics = TargetMetrics(CollectorRegistry(), "m", "p")
    meter = Meter(metrics, TokenLedger(), BlockPool(8, 16), spans)
    meter.round(ENTRY, commit(one))
    meter.ended(one, "length", in_round=True)
    assert kept.spans == []
    meter.round(ENTRY, commit(one))
    assert len(kept.events["paceline.decode"]) == 2
    meter.ended(request(SAMPLED), "cancelled")
    assert kept.events["paceline.decode"] == []
