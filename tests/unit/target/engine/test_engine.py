"""The engine over a fake runner: what sessions receive, whatever happens to rounds, drafters and requests."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from services.common.request.sampling import FinishReason, SpeculationParams, StopParams
from services.common.serving.logs import JsonFormatter
from services.target.core.commands import Attach, CloseSession, Detach, Drain, MoveAll, OpenSession
from services.target.core.plan import Plan
from services.target.engine.emit import LATEST_S
from services.target.engine.parts import EngineDeadError
from tests.support.fakes_runner import FakeRunner, expected_output
from tests.support.metrics import value_of
from tests.unit.target.core.specs import prompt, request
from tests.unit.target.engine.engine_rig import ScriptedDrafts, rig

VOCAB = 97


def test_plain_rounds_deliver_every_token_once() -> None:
    it = rig()
    specs = [request(f"r{n}", prompt(n, 5 + 7 * n, VOCAB), 10 + n) for n in range(4)]
    it.run(*(it.start(each) for each in specs))
    for each in specs:
        assert it.tokens[1, each.request_id] == expected_output(each, VOCAB, each.stopping.max_tokens)
        assert [end.reason for end in it.ends[1, each.request_id]] == [FinishReason.LENGTH]
    assert it.reconciles()
    assert it.ledger.emitted == it.ledger.committed == sum(each.stopping.max_tokens for each in specs)


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_speculation_changes_rounds_not_tokens(accepted: int) -> None:
    it = rig(width=4, runner=FakeRunner(accept=lambda slot, number: accepted))
    drafts = ScriptedDrafts()
    one = request("a", prompt(1, 9, VOCAB), 21)
    it.run(Attach(drafts), it.start(one))
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 21)
    assert it.runner.generation == 1
    assert len(drafts.asked) == -(-20 // (accepted + 1))
    totals = it.ends[1, "a"][0].totals
    assert totals.completion_tokens == 21
    assert totals.rounds == len(drafts.asked)
    assert value_of(it.metrics.spec_decode_num_accepted_tokens) == totals.accepted


def test_a_late_drafter_costs_speed_only_and_the_next_one_speculates_for_the_same_request() -> None:
    it = rig(width=4)
    one = request("a", prompt(1, 9, VOCAB), 60)
    first = ScriptedDrafts(1, late=frozenset({3}))
    it.turn(Attach(first), it.start(one))
    for _ in range(6):
        it.turn()
    assert it.runner.generation == 0
    assert it.runner.rounds[2:6] == [(4, False), (1, False), (1, False), (1, False)]
    assert [entry.fallback for entry in it.recorder.entries()][2] == "late"
    second = ScriptedDrafts(2)
    it.run(Attach(second))
    assert second.asked
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 60)


def test_detach_of_an_old_generation_is_ignored() -> None:
    it = rig()
    new = ScriptedDrafts(2)
    it.turn(Attach(new), Detach(1, "lost"))
    assert it.engine.drafts is new
    it.turn(Detach(2, "lost"))
    assert it.runner.generation == 0


def test_cancel_splits_tokens_into_kept_and_discarded() -> None:
    it = rig()
    it.turn(it.start(request("a", prompt(1, 9, VOCAB), 50)))
    for _ in range(9):
        it.turn()
    sent = len(it.tokens[1, "a"])
    it.run(it.cancel("a", 6, "stop_string"))
    assert it.ends[1, "a"][0].reason is FinishReason.STOP_STRING
    assert len(it.tokens[1, "a"]) == sent
    assert it.ledger.emitted == 6
    assert it.ledger.discarded["stop_string"] == sent - 6
    assert it.reconciles()
    assert value_of(it.metrics.discarded_tokens["stop_string"]) == sent - 6


def test_a_resumed_request_continues_at_its_position() -> None:
    whole = request("a", prompt(1, 9, VOCAB), 20)
    out = expected_output(whole, VOCAB, 20)
    resumed = replace(whole, token_ids=(*whole.token_ids, *out[:8]))
    it = rig()
    it.tokens[1, "a"] = out[:8]
    it.turn(it.start(resumed))
    for _ in range(4):
        it.turn()
    it.run(it.cancel("a", 10))
    assert it.tokens[1, "a"] == out[: len(it.tokens[1, "a"])]
    assert it.ledger.emitted == 2
    assert it.reconciles()


def test_a_closed_session_frees_its_requests_and_tells_nobody() -> None:
    it = rig()
    it.turn(it.start(request("a", prompt(1, 9, VOCAB), 50)), it.start(request("b", prompt(2, 9, VOCAB), 5), session=2))
    it.turn()
    it.run(CloseSession(1, {"a": 1}))
    assert (1, "a") not in it.ends
    assert it.ledger.discarded["cancel"] == 1
    assert it.tokens[2, "b"] == expected_output(request("b", prompt(2, 9, VOCAB), 5), VOCAB, 5)
    assert it.scheduler.load().running == 0
    assert it.reconciles()


def test_a_key_runs_once_but_is_free_again_after_a_broken_session() -> None:
    it = rig()
    keyed = replace(request("a", prompt(1, 9, VOCAB), 5), key="k", tenant="t")
    it.turn(it.start(keyed), it.start(replace(keyed, request_id="b")))
    error = it.ends[1, "b"][0].error
    assert error is not None
    assert error.reason.value == "DUPLICATE"
    it.turn(CloseSession(1, {}))
    it.run(it.start(replace(keyed, request_id="c"), session=2))
    assert it.ends[2, "c"][0].reason is FinishReason.LENGTH


def test_overload_and_impossible_requests_are_refused_alone() -> None:
    it = rig(slots=1, max_waiting=1)
    specs = [request(f"r{n}", prompt(n, 9, VOCAB), 5) for n in range(4)]
    long = request("long", prompt(9, 128, VOCAB), 5)
    it.run(*(it.start(each) for each in specs), it.start(long))
    reasons = {name: ends[0].error.reason.value for (_, name), ends in it.ends.items() if ends[0].error is not None}
    assert reasons.pop("long") == "CONTEXT_LIMIT"
    assert set(reasons.values()) == {"OVERLOADED"}
    served = [name for (_, name), ends in it.ends.items() if ends[0].reason is FinishReason.LENGTH]
    assert len(served) + len(reasons) == 4
    assert served


def test_deadlines_end_waiting_and_running_requests() -> None:
    it = rig(slots=1)
    running = replace(request("a", prompt(1, 9, VOCAB), 100), deadline=105.0)
    waiting = replace(request("b", prompt(2, 9, VOCAB), 100), deadline=104.0)
    it.turn(it.start(running), it.start(waiting))
    it.turn()
    it.clock[0] = 110.0
    it.run()
    assert it.ends[1, "a"][0].reason is FinishReason.DEADLINE
    assert it.ends[1, "b"][0].reason is FinishReason.DEADLINE
    assert it.reconciles()


def told(log: pytest.LogCaptureFixture) -> dict[str, str]:
    """What the log says of a request, by its id."""
    lines = [json.loads(JsonFormatter("target", "p").format(record)) for record in log.records]
    return {line["request_id"]: line["message"] for line in lines if "request_id" in line}


def test_drain_turns_new_requests_away_and_moves_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    it = rig()
    one = request("a", prompt(1, 9, VOCAB), 50)
    it.turn(it.start(one))
    it.turn(Drain(), it.start(request("b", prompt(2, 9, VOCAB), 5)))
    it.turn()
    it.run(MoveAll())
    assert it.ends[1, "a"][0].moved
    assert it.ends[1, "b"][0].moved
    assert told(caplog) == {"a": "a request moves to another target"}
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, len(it.tokens[1, "a"]))
    assert it.reconciles()


def test_a_failed_round_ends_its_requests_and_the_engine_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    it = rig(specification="verify:raise@3")
    it.run(it.start(request("a", prompt(1, 9, VOCAB), 50)))
    assert told(caplog) == {"a": "the round of a request failed"}
    error = it.ends[1, "a"][0].error
    assert error is not None
    assert error.reason.value == "INTERNAL"
    assert "sync point" not in error.message
    after = request("b", prompt(2, 9, VOCAB), 5)
    it.run(it.start(after))
    assert it.tokens[1, "b"] == expected_output(after, VOCAB, 5)
    assert it.reconciles()


def test_an_engine_whose_rounds_keep_failing_dies() -> None:
    def broken(plan: Plan) -> None:
        raise RuntimeError("no device")

    it = rig(runner=FakeRunner(before_execute=broken))
    with pytest.raises(EngineDeadError):
        for n in range(5):
            it.run(it.start(request(f"r{n}", prompt(n, 9, VOCAB), 5)))


def test_an_engine_that_lost_its_device_dies_at_once_and_ends_no_request() -> None:
    runner = FakeRunner()

    def broken(plan: Plan) -> None:
        if plan.number >= 2:
            runner.sound = False
            raise RuntimeError("an illegal memory access")

    runner.before_execute = broken
    it = rig(runner=runner)
    with pytest.raises(EngineDeadError, match="device"):
        it.run(it.start(request("a", prompt(1, 9, VOCAB), 9)))
    assert (1, "a") not in it.ends, "its gateway moves it"


def test_speculation_off_rounds_are_plain() -> None:
    it = rig(width=4)
    drafts = ScriptedDrafts()
    it.run(Attach(drafts), it.start(request("a", prompt(1, 9, VOCAB), 9, speculation=SpeculationParams(off=True))))
    assert drafts.asked == []


def test_stop_tokens_are_delivered_and_end_the_request() -> None:
    one = request("a", prompt(1, 9, VOCAB), 40)
    out = expected_output(one, VOCAB, 40)
    stop = out[10]
    stopping = replace(one, stopping=StopParams(max_tokens=40, stop_token_ids=(stop,), ignore_eos=True))
    it = rig()
    it.run(Attach(ScriptedDrafts()), it.start(stopping))
    assert it.tokens[1, "a"] == out[: out.index(stop) + 1]
    assert it.ends[1, "a"][0].reason is FinishReason.STOP_TOKEN
    assert it.reconciles()


def test_an_idle_engine_beats() -> None:
    it = rig()
    it.engine.turn(())
    it.clock[0] += 0.6
    it.engine.turn(())
    assert len(it.news) == 1
    assert it.news[0].by_session == {}


def test_the_gateway_may_keep_less_of_a_request_that_has_just_ended() -> None:
    it = rig()
    it.run(it.start(request("a", prompt(1, 9, VOCAB), 12)))
    assert it.ledger.unsettled == 12
    it.turn(it.cancel("a", 7, "stop_string"))
    assert value_of(it.metrics.emitted_tokens) == 7, "counted at once, not with the next heartbeat"
    assert value_of(it.metrics.committed_tokens) == 12
    assert (it.ledger.emitted, it.ledger.discarded["stop_string"]) == (7, 5)
    assert len(it.ends[1, "a"]) == 1
    it.turn(it.cancel("a", 3, "stop_string"))
    assert it.reconciles()


def test_a_speculative_round_is_told_once_the_next_has_been_asked_for() -> None:
    it = rig(width=4, runner=FakeRunner(accept=lambda slot, number: 1))
    drafts = ScriptedDrafts()
    it.turn(Attach(drafts), it.start(request("a", prompt(1, 9, VOCAB), 21)))
    first = len(it.tokens[1, "a"])
    it.turn()
    assert (len(drafts.asked), len(it.tokens[1, "a"])) == (1, first), "settled, not told"
    it.turn()
    assert (len(drafts.asked), len(it.tokens[1, "a"])) == (2, first + 2)


def test_a_cancel_after_a_round_that_was_not_told_yet_comes_after_its_tokens() -> None:
    it = rig(width=4, runner=FakeRunner(accept=lambda slot, number: 1))
    it.turn(Attach(ScriptedDrafts()), it.start(request("a", prompt(1, 9, VOCAB), 50)))
    it.turn()
    told = len(it.tokens[1, "a"])
    it.run(it.cancel("a", told))
    assert len(it.tokens[1, "a"]) == told + 2
    assert it.ends[1, "a"][0].reason is FinishReason.CANCELLED
    assert it.ledger.discarded["cancel"] == 2
    assert it.reconciles()


@pytest.mark.parametrize(
    ("how", "counted", "free"),
    [
        ("length", FinishReason.LENGTH, False),
        ("stop_string", FinishReason.STOP_STRING, False),
        ("deadline", FinishReason.DEADLINE, False),
        ("deadline before a token", FinishReason.DEADLINE, True),
        ("cancel", FinishReason.CANCELLED, True),
        ("slow_client", FinishReason.CANCELLED, True),
    ],
)
def test_an_end_is_counted_as_what_it_is_and_a_key_without_an_answer_is_free(
    how: str, counted: FinishReason, free: bool
) -> None:
    it = rig()
    keyed = replace(request("a", prompt(1, 9, VOCAB), 20), key="k", tenant="t", owner="one")
    if how == "deadline before a token":
        keyed = replace(keyed, deadline=it.clock[0] - 1.0)
    it.turn(it.start(keyed))
    for _ in range(40 if how == "length" else 6):
        it.turn()
    if how in ("stop_string", "deadline", "cancel", "slow_client"):
        it.turn(it.cancel("a", 3, how))
    assert value_of(it.metrics.requests[counted.value]) == 1
    assert it.ends[1, "a"][0].reason is counted
    it.run(it.start(replace(keyed, request_id="b", owner="two", deadline=None)))
    again = it.ends[1, "b"][0]
    assert again.reason is FinishReason.LENGTH if free else again.error is not None


def test_a_key_whose_round_failed_is_free() -> None:
    it = rig(specification="verify:raise@2")
    keyed = replace(request("a", prompt(1, 9, VOCAB), 20), key="k", tenant="t", owner="one")
    it.run(it.start(keyed))
    assert it.ends[1, "a"][0].error is not None
    it.run(it.start(replace(keyed, request_id="b", owner="two")))
    assert it.ends[1, "b"][0].reason is FinishReason.LENGTH


def test_a_gateway_that_always_says_what_it_kept_is_waited_for_however_late_it_is(seed: int) -> None:
    """Requests end and gateways tell of them in any order and after any delay; no clock settles one of them."""
    print(f"seed {seed}")
    chance, it, kept = random.Random(seed), rig(), 0
    names = [f"r{number}" for number in range(24)]
    it.turn(OpenSession(1))
    for name in names:
        spec = replace(request(name, prompt(1, 5, VOCAB), chance.randint(1, 12)), deadline=it.clock[0] + 3600.0)
        it.run(it.start(spec))
        it.clock[0] += chance.choice((0.1, 3.0, 60.0))
        it.turn()
    assert (it.ledger.emitted, sum(it.ledger.discarded.values())) == (0, 0)
    for name in chance.sample(names, len(names)):
        told = chance.randint(0, len(it.tokens[1, name]))
        it.turn(it.cancel(name, told), *chance.choice(([], [it.cancel(name, 0)])))
        kept += told
        it.clock[0] += chance.choice((0.1, 30.0))
    assert it.ledger.emitted == kept
    assert it.ledger.unsettled == 0


def test_a_gateway_s_word_is_no_longer_awaited_when_no_stream_can_be_left() -> None:
    it = rig()
    it.turn(OpenSession(1))
    spec = replace(request("a", prompt(1, 9, VOCAB), 12), deadline=it.clock[0] + 100.0)
    it.run(it.start(spec))
    it.clock[0] += 100.0 + LATEST_S - 1.0
    it.turn()
    assert it.ledger.unsettled == 12
    it.clock[0] += 1.0
    it.turn()
    assert (it.ledger.emitted, it.ledger.unsettled) == (12, 0)


def test_what_a_closed_session_never_told_of_is_settled_with_it() -> None:
    it = rig()
    it.turn(OpenSession(1), OpenSession(2))
    for session in (1, 2):
        it.run(it.start(request("a", prompt(1, 9, VOCAB), 12), session))
    it.turn(CloseSession(1, {"a": 5}))
    assert (it.ledger.emitted, it.ledger.discarded["cancel"], it.ledger.unsettled) == (7, 5, 12)
