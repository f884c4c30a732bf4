"""What a round holds: joining and leaving, chunks beside decoding, cancels, deadlines, preemption, look-ahead."""

from collections import deque

import pytest

from services.common.request.errors import Code, PacelineError, Reason
from services.common.request.sampling import FinishReason
from services.target.core.plan import Outcome, Plan
from services.target.core.request import State
from tests.unit.target.scheduling.scheduling import BLOCK, Rig, spec
from tests.unit.target.scheduling.simulated import unloaded_text


def test_a_request_joins_prefills_decodes_and_leaves() -> None:
    """The life of one request, round by round."""
    rig = Rig()
    request = rig.scheduler.add(spec(prompt=20, tokens=6), "session", 0.0)
    first, news = rig.round()
    assert [chunk.last for chunk in first.chunks] == [False] and not first.rows and first.bucket == 0 and not news
    second, news = rig.round()
    assert second.chunks[0].start == 16 and second.chunks[0].last and news[0].position == 0 and len(news[0].tokens) == 1
    third, news = rig.round(matched=2)
    assert third.rows == (0,) and third.width == 4 and third.bucket == 1 and news[0].position == 1
    assert len(news[0].tokens) == 3 and (news[0].accepted, news[0].drafted) == (2, 3)
    rig.finish()
    assert (request.output, request.end) == unloaded_text(request.spec, 64) and request.session == "session"
    assert request.stats.rounds == 2 and request.stats.by_width == {4: 2} and rig.pool.owned == 0


def test_decoding_goes_on_while_a_long_prompt_prefills() -> None:
    """Every round has all decode rows and at most `chunk_tokens` prompt tokens."""
    rig = Rig()
    rig.scheduler.add(spec(prompt=4, tokens=30), None, 0.0)
    rig.round()
    rig.scheduler.add(spec(prompt=60, tokens=1, seed=2), None, 0.0)
    for _ in range(4):
        plan, news = rig.round()
        assert plan.rows == (0,) and 0 < plan.prefill_tokens <= 16 and any(entry.tokens for entry in news)


def test_several_prompts_share_the_chunk_budget_in_order() -> None:
    """The oldest prompt goes first; what it leaves is for the next."""
    rig = Rig()
    for seed in (1, 2, 3):
        rig.scheduler.add(spec(prompt=10, seed=seed), None, float(seed))
    plan, _ = rig.round()
    assert [(chunk.slot, len(chunk.token_ids), chunk.last) for chunk in plan.chunks] == [(0, 10, True), (1, 6, False)]


def test_a_round_without_a_drafter_or_a_wish_for_drafts_is_plain() -> None:
    """Plain rounds do not visit the drafter."""
    rig = Rig()
    rig.scheduler.add(spec(tokens=20, off=True), None, 0.0)
    rig.round()
    assert not rig.round()[0].speculative
    rig.scheduler.add(spec(tokens=20, seed=2), None, 0.0)
    rig.round()
    assert rig.scheduler.plan(9.0, speculate=False).width == 1


@pytest.mark.parametrize("rounds", range(5))
def test_cancel_frees_everything_at_any_point(rounds: int) -> None:
    """Between rounds, and between plan and commit, where the fence holds the blocks until the round is over."""
    rig = Rig(cached=False)
    request = rig.scheduler.add(spec(prompt=20, tokens=20), None, 0.0)
    for _ in range(rounds):
        rig.round()
    plan = rig.scheduler.plan(9.0)
    owned = rig.pool.owned
    assert rig.scheduler.cancel(request.uid, 9.0) is request and rig.scheduler.cancel(request.uid, 9.0) is None
    rig.scheduler.check()
    assert rig.pool.owned == owned, "blocks were freed under a running round"
    outcomes = rig.device.execute(plan, 2)
    commit = rig.scheduler.commit(plan, outcomes, 9.0)
    assert not commit.progress and commit.discarded == sum(len(outcome.tokens) for outcome in outcomes)
    assert rig.pool.free == rig.pool.total and request.end is FinishReason.CANCELLED


def test_a_slot_that_changes_hands_in_flight_gets_a_new_epoch() -> None:
    """Late tokens of the old request never reach the new one."""
    rig = Rig(slots=1, buckets=(1,), look_ahead=1)
    old = rig.scheduler.add(spec(prompt=4, tokens=20), None, 0.0)
    rig.round()
    plan = rig.scheduler.plan(1.0)
    rig.scheduler.cancel(old.uid, 1.0)
    new = rig.scheduler.add(spec(prompt=4, tokens=3, seed=2), None, 1.0)
    following = rig.scheduler.plan(1.0)
    assert following.released == (0,) and following.admissions[0].slot == 0
    outcomes = rig.device.execute(plan, 3)
    late = rig.device.execute(following, 3)
    assert rig.scheduler.commit(plan, outcomes, 1.0).discarded == 4
    assert rig.scheduler.commit(following, late, 1.0).progress[0].request is new
    rig.finish()
    assert new.output == unloaded_text(new.spec, 64)[0]


def test_deadlines_drop_waiting_and_running_requests() -> None:
    """A request whose time is over in the queue never costs work."""
    rig = Rig(slots=1, buckets=(1,))
    running = rig.scheduler.add(spec(tokens=40, deadline=50.0), None, 0.0)
    waiting = rig.scheduler.add(spec(seed=2, deadline=5.0), None, 0.0)
    rig.round()
    assert rig.scheduler.expire(4.9) == []
    assert rig.scheduler.expire(5.0) == [waiting] and waiting.admitted is None
    assert rig.scheduler.expire(60.0) == [running] and rig.scheduler.load().running == 0
    assert {waiting.end, running.end} == {FinishReason.DEADLINE}


def test_a_failed_round_ends_those_that_took_part() -> None:
    """Others go on; nothing that was not computed enters the cache."""
    rig = Rig(slots=1, buckets=(1,))
    failed = rig.scheduler.add(spec(prompt=12), None, 0.0)
    other = rig.scheduler.add(spec(prompt=12), None, 0.0)
    assert rig.scheduler.abandon(rig.scheduler.plan(1.0), 1.0) == [failed]
    assert failed.end is FinishReason.ERROR and other.state is State.WAITING
    rig.finish()
    assert other.cached_tokens == 0 and other.output == unloaded_text(other.spec, 64)[0]


def test_a_failed_round_ends_those_that_it_only_admitted() -> None:
    """The device may never have been told their blocks, so they cannot go on."""
    rig = Rig(slots=2, buckets=(1, 2))
    asked = [rig.scheduler.add(spec(prompt=16, seed=seed), None, 0.0) for seed in range(2)]
    plan = rig.scheduler.plan(1.0)
    assert [chunk.slot for chunk in plan.chunks] == [0] and len(plan.admissions) == 2
    assert rig.scheduler.abandon(plan, 1.0) == asked
    rig.scheduler.check()


def test_a_failed_round_spares_a_request_that_took_over_a_slot_of_it() -> None:
    """With look-ahead the round behind it may have admitted the next holder already."""
    rig = Rig(slots=1, buckets=(1,), look_ahead=1)
    old = rig.scheduler.add(spec(prompt=4, tokens=40), None, 0.0)
    rig.round()
    plan = rig.scheduler.plan(1.0)
    rig.scheduler.cancel(old.uid, 1.0)
    new = rig.scheduler.add(spec(prompt=4, tokens=3, seed=2), None, 1.0)
    following = rig.scheduler.plan(1.0)
    assert following.admissions[0].slot in plan.rows
    assert rig.scheduler.abandon(plan, 1.0) == []
    rig.scheduler.commit(following, rig.device.execute(following, 3), 1.0)
    rig.finish()
    assert new.output == unloaded_text(new.spec, 64)[0]


def test_preempted_requests_wait_and_resume_with_the_same_text() -> None:
    """Four requests in room for two: the youngest give way, and all end as if alone."""
    rig = Rig(blocks=16, preemption=True, cached=False)
    asked = [rig.scheduler.add(spec(prompt=8, tokens=40, seed=seed), None, 0.0) for seed in range(4)]
    rig.finish()
    assert sum(request.preemptions for request in asked) > 0 and asked[0].preemptions == 0
    for request in asked:
        assert (request.output, request.end) == unloaded_text(request.spec, 64)
    assert rig.pool.free == rig.pool.total


def test_requests_without_a_limit_run_together_in_a_pool_of_one_context() -> None:
    """They grow, and the youngest gives way; those with a limit have their blocks for life, and none gives way."""
    rig = Rig(blocks=16, open_ended=True, cached=False)
    open_ended = [rig.scheduler.add(spec(prompt=8, tokens=1 << 20, seed=seed), None, 0.0) for seed in range(3)]
    short = rig.scheduler.add(spec(prompt=8, tokens=8, seed=3), None, 0.0)
    rig.round()
    assert [request.slot is not None for request in (*open_ended, short)] == [True] * 4
    assert len(short.blocks) * BLOCK == 16 > len(open_ended[0].blocks) * BLOCK
    rig.finish()
    assert sum(request.preemptions for request in open_ended) > 0
    assert open_ended[0].preemptions == short.preemptions == 0
    for request in (*open_ended, short):
        assert (request.output, request.end) == unloaded_text(request.spec, 64)
    assert rig.pool.free == rig.pool.total


def test_nobody_grows_where_the_pool_has_a_context_for_every_slot() -> None:
    rig = Rig(blocks=64, open_ended=True)
    request = rig.scheduler.add(spec(prompt=8, tokens=1 << 20), None, 0.0)
    rig.round()
    assert (request.grows, len(request.blocks)) == (False, 16)


def test_rounds_in_flight_reserve_for_all_of_them() -> None:
    """With look-ahead, blocks cover the widest commit of every round planned; one round too many is refused."""
    rig = Rig(blocks=16, preemption=True, look_ahead=2)
    request = rig.scheduler.add(spec(prompt=4, tokens=60), None, 0.0)
    rig.round()
    plans = [rig.scheduler.plan(1.0) for _ in range(3)]
    with pytest.raises(RuntimeError, match="not committed"):
        rig.scheduler.plan(1.0)
    with pytest.raises(RuntimeError, match="not the oldest"):
        rig.scheduler.commit(plans[1], (), 1.0)
    for _ in range(10):
        assert len(request.blocks) * BLOCK >= min(request.limit, request.computed + 3 * 4)
        oldest = plans.pop(0)
        rig.scheduler.commit(oldest, rig.device.execute(oldest, 3), 1.0)
        plans.append(rig.scheduler.plan(1.0))


@pytest.mark.parametrize(
    ("asked", "reason", "field"),
    [
        (spec(prompt=64), Reason.CONTEXT_LIMIT, "token_ids"),
        (spec(prompt=30, tokens=30), Reason.CONTEXT_LIMIT, "max_tokens"),
        (spec(tokens=0), Reason.INVALID_FIELD, "max_tokens"),
    ],
)
def test_impossible_requests_are_refused_at_once(asked: object, reason: Reason, field: str) -> None:
    """A typed error that names the field; nothing is queued."""
    rig = Rig(blocks=14)
    with pytest.raises(PacelineError) as caught:
        rig.scheduler.add(asked, None, 0.0)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.reason, caught.value.field) == (Code.INVALID_ARGUMENT, reason, field)
    assert not rig.scheduler.live()


def test_the_context_limit_is_exact() -> None:
    """A prompt of one token less than the context is served and ends there."""
    rig = Rig()
    request = rig.scheduler.add(spec(prompt=63, tokens=30), None, 0.0)
    rig.finish()
    assert request.end is FinishReason.CONTEXT and len(request.tokens) == 64


def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    """Requests and queued prompt tokens are both bounded; one long prompt may always wait alone."""
    rig = Rig(max_waiting=2, max_queued_tokens=20)
    rig.scheduler.add(spec(prompt=40), None, 0.0)
    with pytest.raises(PacelineError) as caught:
        rig.scheduler.add(spec(prompt=4, seed=2), None, 0.0)
    assert caught.value.reason is Reason.OVERLOADED and caught.value.retry_after_s
    rig.round()
    rig.scheduler.add(spec(prompt=4, seed=2), None, 0.0)
    rig.scheduler.add(spec(prompt=4, seed=3), None, 0.0)
    with pytest.raises(PacelineError, match="2 requests wait"):
        rig.scheduler.add(spec(prompt=1, seed=4), None, 0.0)


def test_load_counts_what_runs_and_waits() -> None:
    """What routing reads."""
    rig = Rig(slots=1, buckets=(1,), cached=False)
    rig.scheduler.add(spec(prompt=20, tokens=4), None, 0.0)
    rig.scheduler.add(spec(prompt=8, tokens=4, seed=2), None, 0.0)
    rig.round()
    load = rig.scheduler.load()
    assert (load.running, load.waiting, load.slots, load.queued_tokens) == (1, 1, 1, 8 + 4)
    assert (load.free_blocks, load.total_blocks) == (64 - 6, 64)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_a_row_that_ends_in_the_round_ahead_is_not_computed_again(tokens: int) -> None:
    """Each round in flight brings a token at least, so the last one is known to be the last."""
    rig = Rig(width=1, look_ahead=1)
    request = rig.scheduler.add(spec(prompt=4, tokens=tokens), None, 0.0)
    flights: deque[tuple[Plan, tuple[Outcome, ...]]] = deque()
    rounds = 0
    while request.end is None:
        plan = rig.scheduler.plan(float(rounds))
        if not plan.empty:
            rounds += 1
            flights.append((plan, rig.device.execute(plan, 0)))
        if plan.empty or len(flights) > 1:
            rig.scheduler.commit(*flights.popleft(), float(rounds))
    assert not flights
    assert rounds == tokens, "one for the prompt and its first token, one for each token behind it"
    assert request.output == unloaded_text(request.spec, 64)[0]


def test_a_round_knows_of_prompts_in_the_round_that_it_is_planned_behind() -> None:
    rig = Rig(look_ahead=1)
    rig.scheduler.add(spec(prompt=4, tokens=30), None, 0.0)
    first, second = (rig.scheduler.plan(0.0) for _ in range(2))
    rig.scheduler.commit(first, rig.device.execute(first, 0), 0.0)
    third = rig.scheduler.plan(0.0)
    assert [bool(plan.chunks) for plan in (first, second, third)] == [True, False, False]
    assert [plan.behind_prompts for plan in (first, second, third)] == [False, True, False]


def test_rows_are_packed_in_whole_segments() -> None:
    """What a segment's padding takes is not there for the next prompt, which goes on in the next round."""
    rig = Rig(segment=8)
    for seed, prompt in enumerate((9, 3, 20), 1):
        rig.scheduler.add(spec(prompt=prompt, seed=seed), None, float(seed))
    assert [(chunk.slot, len(chunk.token_ids)) for chunk in rig.round()[0].chunks] == [(0, 9)]
    assert [(chunk.slot, len(chunk.token_ids)) for chunk in rig.round()[0].chunks] == [(1, 3), (2, 8)]
