"""The engine over a runner that looks ahead: a round is launched before the one before it is read."""

from __future__ import annotations

import random

from services.common.request.sampling import FinishReason
from services.target.core.commands import Attach, Command, Detach
from services.target.core.launching import Launching
from services.target.core.plan import Plan
from tests.support.fakes_runner import FakeRunner, expected_output
from tests.unit.target.core.specs import prompt, request
from tests.unit.target.engine.engine_rig import Rig, ScriptedDrafts, rig

VOCAB = 97
MOST_TURNS = 400
"""Turns in which a random life ends; the longest of sixty takes 170."""


def ahead(width: int = 4, accepted: int = 1) -> tuple[Rig, list[str]]:
    log: list[str] = []
    runner = FakeRunner(
        accept=lambda slot, number: accepted,
        look_ahead=1,
        before_execute=lambda plan: log.append(f"launch {plan.number}"),
        before_land=lambda plan: log.append(f"land {plan.number}"),
    )
    return rig(width=width, runner=runner), log


def test_a_round_lands_while_the_next_one_runs() -> None:
    it, log = ahead()
    one = request("a", prompt(1, 9, VOCAB), 8)
    it.run(Attach(ScriptedDrafts()), it.start(one))
    assert log[:3] == ["launch 1", "launch 2", "land 1"], "the first draft is asked for before the first token is read"
    assert log[3:7] == ["launch 3", "land 2", "launch 4", "land 3"]
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 8)
    assert not it.runner.in_flight
    assert it.reconciles()


def test_masks_of_a_round_are_made_behind_the_commit_of_the_round_before_it() -> None:
    it, log = ahead()
    it.runner.before_rule = lambda plan: log.append(f"rule {plan.number}")
    one = request("a", prompt(1, 9, VOCAB), 12)
    it.run(Attach(ScriptedDrafts()), it.start(one))
    for number in range(2, 5):
        order = [log.index(step) for step in (f"launch {number}", f"land {number - 1}", f"rule {number}")]
        assert order == sorted(order)
        assert log.index(f"rule {number}") < log.index(f"launch {number + 1}"), "the device has the next round in time"
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 12)
    assert it.reconciles()


def test_a_launch_lasts_until_the_round_is_launched_and_not_while_one_lands() -> None:
    launching, seen = Launching(clock=lambda: 1.0), list[tuple[str, bool]]()
    runner = FakeRunner(
        look_ahead=1,
        before_execute=lambda plan: seen.append(("launch", launching.lasts)),
        before_land=lambda plan: seen.append(("land", launching.lasts)),
    )
    it = rig(width=1, runner=runner, launching=launching, real_time=True)
    it.run(it.start(request("a", prompt(1, 9, VOCAB), 4)))
    assert set(seen) == {("launch", True), ("land", False)}
    assert not launching.lasts


def test_seats_change_hands_while_a_round_runs() -> None:
    it, log = ahead()
    one, two = request("a", prompt(1, 9, VOCAB), 40), request("b", prompt(2, 9, VOCAB), 10)
    it.turn(it.start(one))
    it.turn()
    told = len(it.tokens[1, "a"])
    log.clear()
    it.turn(it.cancel("a", told), it.start(two))
    assert log == ["launch 3", "land 2"], "b takes the seat of a, whose round is not read yet"
    it.run()
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 40)[:told]
    assert it.tokens[1, "b"] == expected_output(two, VOCAB, 10)
    assert it.reconciles()


def test_chunks_of_a_prompt_follow_one_another_and_the_rows_beside_them() -> None:
    it, log = ahead()
    it.turn(it.start(request("a", prompt(1, 9, VOCAB), 60)))
    long = request("b", prompt(2, 90, VOCAB), 10)
    it.turn(it.start(long))
    log.clear()
    for _ in range(4):
        it.turn()
    assert log == ["launch 3", "land 2", "launch 4", "land 3", "launch 5", "land 4", "launch 6", "land 5"]
    it.run()
    assert it.tokens[1, "b"] == expected_output(long, VOCAB, 10)
    assert it.reconciles()


def test_tokens_of_a_round_in_flight_are_dropped_after_a_cancel() -> None:
    it, _ = ahead()
    one = request("a", prompt(1, 9, VOCAB), 40)
    it.turn(Attach(ScriptedDrafts()), it.start(one))
    for _ in range(4):
        it.turn()
    told = len(it.tokens[1, "a"])
    it.run(it.cancel("a", told))
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 40)[:told]
    assert it.ledger.discarded["epoch"] == 2
    assert it.reconciles()


def test_a_late_drafter_is_left_with_nothing_in_flight() -> None:
    it, log = ahead()
    one = request("a", prompt(1, 9, VOCAB), 40)
    it.run(Attach(ScriptedDrafts(1, late=frozenset({4}))), it.start(one))
    assert it.runner.generation == 0
    assert log.index("land 3") < log.index("launch 4")
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 40)


def test_rounds_for_whose_drafts_the_device_waited_in_vain_say_why() -> None:
    it, _ = ahead()
    drafts = ScriptedDrafts()

    def give_up(plan: Plan) -> None:
        if plan.number == 4:
            drafts.speculating, drafts.fallback = False, "late"

    it.runner.undrafted, it.runner.before_land = frozenset({4, 5}), give_up
    one = request("a", prompt(1, 9, VOCAB), 40)
    it.run(Attach(drafts), it.start(one))
    assert [entry.number for entry in it.recorder.entries() if entry.fallback == "late"] == [4, 5]
    assert it.tokens[1, "a"] == expected_output(one, VOCAB, 40)


def test_a_round_that_fails_in_flight_ends_its_requests_and_the_engine_goes_on() -> None:
    it, _ = ahead()

    def break_once(plan: Plan) -> None:
        if plan.number == 3:
            raise RuntimeError("device")

    it.runner.before_land = break_once
    it.run(Attach(ScriptedDrafts()), it.start(request("a", prompt(1, 9, VOCAB), 40)))
    end = it.ends[1, "a"][0]
    assert end.error is not None
    two = request("b", prompt(2, 9, VOCAB), 12)
    it.run(it.start(two))
    assert it.tokens[1, "b"] == expected_output(two, VOCAB, 12)
    assert it.reconciles()


def test_any_order_of_starts_cancels_and_drafters_gives_the_same_text() -> None:
    for seed in range(60):
        source = random.Random(seed)
        it, _ = ahead(accepted=source.randint(0, 3))
        specs = {
            f"r{n}": request(f"r{n}", prompt(n, source.randint(1, 40), VOCAB), source.randint(1, 60)) for n in range(9)
        }
        waiting, generation, idle = list(specs.values()), 0, 0
        for _ in range(MOST_TURNS):
            idle += not waiting and len(it.ends) == len(specs)
            commands: list[Command] = []
            if waiting and source.random() < 0.3:
                commands.append(it.start(waiting.pop()))
            if source.random() < 0.05:
                generation += 1
                late = frozenset({it.engine.steps + source.randint(1, 9)})
                commands.append(Attach(ScriptedDrafts(generation, late)))
            if source.random() < 0.03:
                commands.append(Detach(generation, "lost"))
            name = f"r{source.randrange(9)}"
            if source.random() < 0.05 and (1, name) in it.tokens and (1, name) not in it.ends:
                commands.append(it.cancel(name, len(it.tokens[1, name])))
            it.turn(*commands)
            if idle == 20:
                break
        assert len(it.ends) == len(specs), f"seed {seed}: after {MOST_TURNS} turns some have not ended"
        it.run()
        for name, spec in specs.items():
            text, (end,) = it.tokens.get((1, name), []), it.ends[1, name]
            assert text == expected_output(spec, VOCAB, spec.stopping.max_tokens)[: len(text)], f"seed {seed}"
            assert end.reason is FinishReason.CANCELLED or len(text) == spec.stopping.max_tokens, f"seed {seed}"
        assert it.reconciles(), f"seed {seed}"
