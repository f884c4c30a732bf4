"""How long planning and committing take at 256 slots; reported, not judged."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from time import perf_counter

from services.common.request.sampling import StopParams
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.core.plan import Outcome
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.scheduling import spec

BUCKETS = (64, 128, 256)
MICROS = {(bucket, width): 1000.0 + bucket * width for bucket in BUCKETS for width in (1, 4, 8, 16)}


def test_planning_at_256_slots(report_counts: Callable[[str, int], None]) -> None:
    """Plans, commits and counts microseconds."""
    pool = BlockPool(256 * 80, 16)
    settings = SchedulerSettings(256, 1280, BUCKETS, chunk_tokens=1 << 16)
    policy = adaptive_policy((1, 4, 8, 16), BUCKETS, MICROS)
    scheduler = Scheduler(settings, pool, PrefixCache(pool, b"m", b"d"), policy)
    for seed in range(256):
        asked = replace(spec(prompt=256, seed=seed), stopping=StopParams(max_tokens=1000, ignore_eos=True))
        scheduler.add(asked, None, 0.0)
    planning, committing = [], []
    for _ in range(30):
        begun = perf_counter()
        plan = scheduler.plan(0.0)
        planning.append(perf_counter() - begun)
        epochs = {request.slot: request.epoch for request in scheduler.live()}
        done = [Outcome(chunk.slot, chunk.epoch, (5,)) for chunk in plan.chunks]
        done += [Outcome(slot, epochs[slot], (7, 8, 9), 2, plan.width - 1) for slot in plan.rows]
        begun = perf_counter()
        scheduler.commit(plan, done, 0.0, 1000.0)
        committing.append(perf_counter() - begun)
    assert len(plan.rows) == 256
    report_counts("plan_256_us", round(median(planning) * 1e6))
    report_counts("commit_256_us", round(median(committing) * 1e6))
