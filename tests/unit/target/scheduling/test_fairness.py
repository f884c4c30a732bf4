"""Order in the queue: tenants take turns; first come first served, priorities honoured, nobody starved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.request.errors import PacelineError
from services.target.core.request import Request
from services.target.scheduling.waiting import AGEING_S
from services.target.scheduling.width.policy import FixedWidth
from tests.unit.target.scheduling.scheduling import Rig, spec


def served(rig: Rig, asked: list[Request]) -> list[int]:
    """Indices of the requests in the order in which they were admitted."""
    rig.finish()
    return sorted(range(len(asked)), key=lambda index: (asked[index].admitted, asked[index].order))


@given(st.lists(st.integers(1, 12), min_size=2, max_size=8))
def test_equals_are_served_in_order_of_arrival(lengths: list[int]) -> None:
    """However long their prompts are; a small one does not slip past a large one that waits for blocks."""
    rig = Rig(blocks=8, slots=2, buckets=(2,))
    asked = [rig.scheduler.add(spec(length, seed=index), None, float(index)) for index, length in enumerate(lengths)]
    assert served(rig, asked) == list(range(len(lengths)))
    admitted = [request.admitted or 0.0 for request in asked]
    assert admitted == sorted(admitted)


def test_higher_priority_goes_first() -> None:
    """Among requests that came together."""
    rig = Rig(slots=1, buckets=(1,))
    asked = [rig.scheduler.add(spec(seed=index, priority=index), None, 0.0) for index in range(4)]
    assert served(rig, asked) == [3, 2, 1, 0]


def test_a_low_priority_request_is_served_under_a_flood_of_high_ones() -> None:
    """It waits at most the ageing time for each level it is below, then it is the oldest."""
    rig = Rig(slots=1, buckets=(1,), ageing_s=20.0)
    low = rig.scheduler.add(spec(tokens=2, seed=999), None, 0.0)
    for index in range(200):
        rig.scheduler.add(spec(tokens=2, seed=index, priority=2), None, rig.now)
        rig.round()
    assert low.admitted is not None and 40.0 <= low.admitted <= 90.0


def wait_of_b(priority: int, *, preemption: bool = False) -> float:
    """Rounds until b's first token, while tenant a keeps 32 requests of a priority before four slots."""
    rig = Rig(blocks=256, ageing_s=AGEING_S, preemption=preemption)
    flood = [rig.scheduler.add(spec(seed=n, priority=priority, tenant="a"), None, 0.0) for n in range(32)]
    for _ in range(3):
        rig.round()
    request = rig.scheduler.add(spec(seed=999, tenant="b"), None, rig.now)
    for number in range(1000, 1400):
        missing = 32 - sum(each.end is None for each in flood)
        flood += [
            rig.scheduler.add(spec(seed=number + n, priority=priority, tenant="a"), None, rig.now)
            for n in range(missing)
        ]
        if request.first_token is not None:
            return request.first_token - request.arrived
        rig.round()
    raise AssertionError("b starved")


@pytest.mark.parametrize("preemption", [False, True])
def test_priority_is_no_way_past_other_tenants(preemption: bool) -> None:
    """What b waits beside a flood of the highest priority is what it waits beside one of none: one turn of a's."""
    plain, flooded = wait_of_b(0, preemption=preemption), wait_of_b(100, preemption=preemption)
    assert flooded <= 2 * plain
    assert flooded <= 10, "rounds that one of a's requests takes"


def test_tenants_take_turns_however_many_requests_each_has() -> None:
    rig = Rig(slots=1, buckets=(1,))
    names = [*"aaaaa", *"bbb", "c"]
    asked = [
        rig.scheduler.add(spec(tokens=2, seed=number, tenant=name), None, 0.0) for number, name in enumerate(names)
    ]
    rig.finish()
    order = sorted(range(len(asked)), key=lambda index: asked[index].admitted or 0.0)
    assert "".join(names[index] for index in order) == "abcababaa"


def test_the_lowest_priority_is_served_within_the_lifetime_of_a_request() -> None:
    """Though requests of the highest priority of the same tenant keep coming."""
    rig = Rig(slots=1, buckets=(1,), ageing_s=AGEING_S)
    low = rig.scheduler.add(spec(tokens=2, seed=999, priority=-100), None, 0.0)
    for index in range(200):
        rig.scheduler.add(spec(tokens=2, seed=index, priority=100), None, rig.now)
        rig.round()
    assert low.admitted is not None
    assert 60.0 <= low.admitted <= 150.0, "a quarter of what a request may take"


def test_a_tenants_first_prompt_may_wait_beside_anothers_many() -> None:
    rig = Rig(max_queued_tokens=20)
    for number in range(3):
        rig.scheduler.add(spec(seed=number, tenant="a"), None, 0.0)
    with pytest.raises(PacelineError):
        rig.scheduler.add(spec(seed=9, tenant="a"), None, 0.0)
    rig.scheduler.add(spec(seed=10, tenant="b"), None, 0.0)
    with pytest.raises(PacelineError):
        rig.scheduler.add(spec(seed=11, tenant="b"), None, 0.0)


def test_prefill_of_a_flood_does_not_starve_decoding() -> None:
    """A stream that decodes gets a row in every round while prompts keep coming."""
    rig = Rig(blocks=128)
    stream = rig.scheduler.add(spec(prompt=4, tokens=50), None, 0.0)
    rig.round()
    slot = stream.slot
    for index in range(12):
        rig.scheduler.add(spec(prompt=40, tokens=2, seed=index + 2), None, rig.now)
        plan, _ = rig.round(matched=0)
        assert slot in plan.rows and plan.chunks


def burst(seconds: float, rounds: int) -> list[tuple[int, ...]]:
    """Rows of the first rounds of four requests that came together, with rounds of so many seconds."""
    rig = Rig(blocks=128, slots=4, chunk_tokens=8)
    for index in range(4):
        rig.scheduler.add(spec(prompt=9, tokens=20, seed=index + 1), None, 0.0)
    plans = []
    for _ in range(rounds):
        rig.now += seconds - 1.0
        plans.append(rig.round(matched=0)[0])
    assert all(plan.chunks for plan in plans[:5])
    return [plan.rows for plan in plans]


def test_decoding_pauses_while_a_burst_waits_for_its_prompts() -> None:
    """In the third round one could decode, in the fourth two, but more than one wait."""
    assert burst(0.01, 6) == [(), (), (), (), (0, 1, 2), (0, 1, 2, 3)]


def test_nobody_pauses_for_long() -> None:
    """Rounds that take longer than the pause have a row for everybody."""
    assert burst(0.5, 3) == [(), (), (0,)]


def test_a_pause_counts_the_prompts_that_end_it() -> None:
    """The third round would end 1.2 s behind the first; a burst that met nobody may pause for 0.96."""
    assert burst(0.4, 3) == [(), (), (0,)]
    assert burst(0.24, 3) == [(), (), ()]


def test_no_width_is_chosen_for_a_round_that_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that probes would take the probe for done."""
    chosen: list[int] = []
    choose = FixedWidth.choose

    def counted(policy: FixedWidth, bucket: int, rows: int, context: int = 0) -> int:
        chosen.append(rows)
        return choose(policy, bucket, rows, context)

    monkeypatch.setattr(FixedWidth, "choose", counted)
    assert burst(0.01, 6) == [(), (), (), (), (0, 1, 2), (0, 1, 2, 3)]
    assert chosen == [3, 4]


def test_one_long_prompt_does_not_make_many_streams_pause() -> None:
    """They are the many."""
    rig = Rig(blocks=128, slots=4, chunk_tokens=8)
    for index in range(3):
        rig.scheduler.add(spec(prompt=4, tokens=50, seed=index + 1), None, 0.0)
    for _ in range(3):
        rig.round()
    rig.scheduler.add(spec(prompt=40, tokens=2, seed=9), None, rig.now)
    for _ in range(4):
        rig.now -= 1.0
        plan, _ = rig.round(matched=0)
        assert plan.chunks and len(plan.rows) == 3
