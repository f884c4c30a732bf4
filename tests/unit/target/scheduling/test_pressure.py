"""2,000 requests on a pool four times too small, 30 % of them cancelled: all end, nothing leaks, texts are right."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from services.common.request.errors import PacelineError, Reason
from services.common.request.sampling import FinishReason, SamplingParams, StopParams
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.core.request import Request, RequestSpec
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.simulated import EOS, SimulatedRunner, unloaded_text

SLOTS, BLOCK, CONTEXT, WIDTHS, BUCKETS = 16, 8, 128, (1, 4, 8), (4, 16)
MICROS = {(bucket, width): 100.0 + bucket + 8 * width for bucket in BUCKETS for width in WIDTHS}


def arrival(source: random.Random, number: int) -> RequestSpec:
    """A request of random length, every other one with a known beginning."""
    shared = tuple(range(2, 2 + source.choice((0, 24, 48)))) if number % 2 else ()
    ids = shared + tuple(source.randrange(2, 320) for _ in range(source.randint(1, 48)))
    stopping = StopParams(max_tokens=source.randint(1, 60))
    return RequestSpec(str(number), ids, len(ids), SamplingParams(seed=number), stopping, priority=number % 3)


def arrived(source: random.Random, number: int, open_ended: bool) -> RequestSpec:
    """The next request; of some the limit is taken away."""
    spec = arrival(source, number)
    return replace(spec, stopping=StopParams(max_tokens=1 << 20)) if open_ended and number % OPEN == 0 else spec


OPEN = 3
"""Every third request names no limit where such requests grow."""


@pytest.mark.parametrize(("preemption", "open_ended"), [(False, False), (True, False), (False, True)])
def test_everything_ends_and_nothing_leaks(
    preemption: bool, open_ended: bool, seed: int, report_counts: Callable[[str, int], None]
) -> None:
    """All ways of admission; refusals are OVERLOADED and come back later."""
    source = random.Random(seed)
    pool = BlockPool(SLOTS * CONTEXT // BLOCK // 4, BLOCK)
    settings = SchedulerSettings(
        SLOTS, CONTEXT, BUCKETS, chunk_tokens=64, max_waiting=64, preemption=preemption, open_ended=open_ended, eos=EOS
    )
    scheduler = Scheduler(settings, pool, PrefixCache(pool, b"m", b"d"), adaptive_policy(WIDTHS, BUCKETS, MICROS))
    device = SimulatedRunner(BLOCK, CONTEXT)
    asked: list[Request] = []
    refused = rounds = 0
    while len(asked) < 2000 or scheduler.live():
        now = rounds * 0.01
        rounds += 1
        try:
            for _ in range(source.randint(0, 4) if len(asked) < 2000 else 0):
                asked.append(scheduler.add(arrived(source, len(asked), open_ended), None, now))
        except PacelineError as error:
            assert error.reason is Reason.OVERLOADED and error.retry_after_s
            refused += 1
        plan = scheduler.plan(now, speculate=rounds % 50 > 5)
        live = scheduler.live()
        if live and source.random() < (0.3 if open_ended else 0.45):
            scheduler.cancel(source.choice(live).uid, now)
        if not plan.empty:
            scheduler.commit(plan, device.execute(plan, source.randint(-1, 7)), now, 120.0)
        if rounds % 7 == 0:
            scheduler.check()
        assert rounds < 100_000, "some request starves"
    scheduler.check()
    assert pool.owned == 0, "blocks leaked"
    cancelled = sum(request.end is FinishReason.CANCELLED for request in asked)
    print(f"rounds={rounds} refused={refused} cancelled={cancelled} preempted={sum(r.preemptions for r in asked)}")
    assert 0.2 <= cancelled / len(asked) <= 0.45
    assert (preemption or open_ended) == any(request.preemptions for request in asked)
    assert not any(request.preemptions for request in asked if not request.grows)
    assert preemption or {request.grows for request in asked} == {False, open_ended}
    for request in asked:
        text, end = unloaded_text(request.spec, CONTEXT)
        assert request.output == text[: request.generated]
        assert request.end is FinishReason.CANCELLED or (request.output, request.end) == (text, end)
    report_counts("pressure_requests", len(asked))
