"""Snapshots of recurrent states: when they are kept, who goes on from them, which goes first."""

import pytest

from services.common.request.sampling import FinishReason
from services.target.cache.snapshots import SnapshotPool
from services.target.cache.state_keeper import SPACING
from services.target.core.request import Request, RequestSpec
from tests.unit.target.scheduling.scheduling import GRID, Rig, spec
from tests.unit.target.scheduling.simulated import unloaded_text

SHARED = tuple(range(10, 38))


def ask(rig: Rig, asked: RequestSpec) -> Request:
    """A request that runs alone, to its end, and says what it would have said anywhere."""
    request = rig.scheduler.add(asked, None, rig.now)
    rig.finish()
    assert request.output == unloaded_text(asked, 4096)[0]
    return request


def test_the_least_recently_used_goes_first() -> None:
    pool = SnapshotPool(3, GRID)
    assert [pool.take(name) for name in (b"a", b"b", b"c")] == [0, 1, 2]
    assert pool.use(b"a") == 0
    assert pool.take(b"d") == 1, "b was used least recently"
    assert pool.take(b"c") is None, "it is held already"
    assert pool.take(b"e") == 0, "and counts as used"
    assert (set(pool.names), pool.hits, pool.evictions) == ({b"c", b"d", b"e"}, 1, 2)
    pool.forget(b"b")
    pool.check()


def test_a_pool_needs_a_place() -> None:
    with pytest.raises(ValueError, match="at least one snapshot"):
        SnapshotPool(0, GRID)


def test_the_same_prompt_goes_on_at_its_last_whole_block() -> None:
    rig = Rig(snapshots=4)
    cold, again = ask(rig, spec(ids=SHARED, tokens=3)), ask(rig, spec(ids=SHARED, tokens=3))
    assert (cold.cached_tokens, again.cached_tokens) == (0, 24)
    assert rig.snapshots is not None and rig.snapshots.hits == 1


@pytest.mark.parametrize("width", [1, 4, 8])
def test_the_next_turn_goes_on_close_to_the_last_ones_end(width: int) -> None:
    """A state holds what was there when the last round began: it is behind by less than a block and a round."""
    rig = Rig(width=width, snapshots=4)
    for tokens in range(1, 14):
        first = ask(rig, spec(seed=tokens, prompt=20 + tokens, tokens=tokens))
        turn = ask(rig, spec(ids=(*first.tokens, *range(5, 17)), tokens=3))
        assert turn.prefill_to - turn.cached_tokens <= GRID + width + 12
        assert turn.branch == 0, "a chunk that ended there would cost more than it spared"


def test_a_text_known_further_than_its_snapshots_is_cut_there_once() -> None:
    """Two prompts begin alike, and neither ended there: the second leaves a snapshot, from which the third goes on."""
    rig = Rig(snapshots=8)
    cached, chunks = [], []
    for seed in range(4):
        ids = (*SHARED, *(100 + 20 * seed + index for index in range(20)))
        request = rig.scheduler.add(spec(ids=ids, tokens=2), None, rig.now)
        plans = []
        while rig.scheduler.live():
            plans.append(rig.round()[0])
        assert request.output == unloaded_text(request.spec, 64)[0]
        cached.append(request.cached_tokens)
        chunks.append([chunk.start for plan in plans for chunk in plan.chunks])
    assert cached == [0, 0, 24, 24]
    assert chunks == [[0, 16, 32], [0, 16, 24, 32], [24, 40], [24, 40]]


def test_a_long_prompt_is_kept_on_its_way() -> None:
    rig = Rig(blocks=2000, snapshots=8, context_limit=4096, chunk_tokens=500, slots=1, buckets=(1,))
    long = tuple(2 + index * 7 % 300 for index in range(SPACING + 900))
    ask(rig, spec(ids=long, tokens=1))
    other = ask(rig, spec(ids=(*long[: SPACING + 800], 5, 5, 5), tokens=1))
    assert other.cached_tokens == 2496, "the end of the chunk that passed the spacing"


def test_a_preempted_request_goes_on_from_where_it_was() -> None:
    """Its state is kept before another request gets its slot."""
    rig = Rig(blocks=20, snapshots=4, preemption=True, slots=2, buckets=(1, 2))
    old = rig.scheduler.add(spec(seed=1, prompt=20, tokens=24), None, 0.0)
    young = rig.scheduler.add(spec(seed=2, prompt=20, tokens=30), None, 0.0)
    rig.finish()
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert young.cached_tokens == 32, "of 35"
    for request in (old, young):
        assert request.output == unloaded_text(request.spec, 64)[0]


def test_what_a_failed_round_kept_does_not_count() -> None:
    """Nor what a slot that it computed was to keep: perhaps nothing was written."""
    rig = Rig(snapshots=4)
    assert rig.snapshots is not None
    rig.scheduler.add(spec(ids=SHARED, tokens=9), None, 0.0)
    plan, _ = rig.round()
    plan = rig.scheduler.plan(rig.now)
    assert len(plan.every_save) == 1 and rig.snapshots.held == 1
    rig.device.fail(plan)
    assert [request.end for request in rig.scheduler.abandon(plan, rig.now)] == [FinishReason.ERROR]
    rig.scheduler.check()
    assert (rig.snapshots.held, rig.snapshots.free) == (0, 4)
    assert rig.scheduler.plan(rig.now).empty
    assert ask(rig, spec(ids=SHARED, tokens=9)).cached_tokens == 0


def test_what_a_failed_round_was_to_fold_does_not_count() -> None:
    """The request ended while that round was in flight; its slot was to hold another block after it."""
    rig = Rig(snapshots=4, look_ahead=1)
    request = rig.scheduler.add(spec(prompt=5, tokens=5), None, 0.0)
    rig.round(matched=3)
    last, behind = rig.scheduler.plan(rig.now), rig.scheduler.plan(rig.now)
    rig.scheduler.commit(last, rig.device.execute(last, 3), rig.now)
    assert request.end is FinishReason.LENGTH
    assert rig.snapshots is not None and rig.snapshots.held == 1
    rig.device.fail(behind)
    rig.scheduler.abandon(behind, rig.now)
    assert rig.snapshots.held == 0
    ask(rig, spec(prompt=3, tokens=2))


def test_a_prompt_that_is_cancelled_in_flight_leaves_no_snapshot() -> None:
    """Its K/V never came to be known, so nothing could find it."""
    rig = Rig(snapshots=4)
    request = rig.scheduler.add(spec(prompt=12), None, 0.0)
    plan = rig.scheduler.plan(rig.now)
    assert rig.snapshots is not None and rig.snapshots.held == 1
    rig.scheduler.cancel(request.uid, rig.now)
    rig.scheduler.commit(plan, rig.device.execute(plan, 0), rig.now)
    rig.scheduler.check()
    assert rig.snapshots.held == 0


def test_a_request_that_leaves_is_kept_as_the_rounds_in_flight_will_leave_it() -> None:
    """With one of them the host knows what that will be; with two it does not, and keeps nothing."""
    for ahead, kept in ((0, 1), (1, 1), (2, 0)):
        rig = Rig(snapshots=4, look_ahead=2)
        request = rig.scheduler.add(spec(prompt=7, tokens=30), None, 0.0)
        for _ in range(4):
            rig.round(matched=3)
        flying = [rig.scheduler.plan(rig.now) for _ in range(ahead)]
        rig.scheduler.cancel(request.uid, rig.now)
        for plan in flying:
            rig.scheduler.commit(plan, rig.device.execute(plan, 3), rig.now)
        assert rig.snapshots is not None and rig.snapshots.held == kept
        ask(rig, spec(prompt=3, tokens=2))
