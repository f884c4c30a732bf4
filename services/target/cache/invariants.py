"""Checks I7: every block and snapshot is in one place, and every counted owner is a request that exists."""

from collections.abc import Iterable

from services.target.cache.manager import KVCacheManager
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.cache.state_keeper import StateKeeper
from services.target.core.plan import Plan
from services.target.core.request import Request


def check_memory(
    memory: KVCacheManager, keeper: StateKeeper, running: Iterable[Request], in_flight: Iterable[Plan]
) -> None:
    """Raises AssertionError when pools, cache and requests disagree about any block or snapshot."""
    running = list(running)
    _check_blocks(memory, running)
    if memory.pool.windows is not None:
        memory.pool.windows.check(running, memory.pool.is_cached)
    if memory.cache is not None and memory.cache.snapshots is not None:
        _check_snapshots(memory.cache, memory.cache.snapshots, keeper, in_flight)


def _check_blocks(memory: KVCacheManager, running: Iterable[Request]) -> None:
    pool = memory.pool
    pool.check()
    owners = [0] * (pool.total + 1)
    for block in pool.leaving():
        owners[block] += 1
    for request in running:
        assert len(set(request.blocks)) == len(request.blocks), f"request {request.uid} owns a block twice"
        assert len(request.blocks) * pool.block_size >= request.computed, f"request {request.uid} outgrew its blocks"
        for block in request.blocks:
            owners[block] += 1
    wrong = [(block, *both) for block, both in enumerate(zip(pool.counts(), owners, strict=True)) if both[0] != both[1]]
    assert not wrong, f"block, owners and known ones: {wrong}"
    assert pool.free + pool.owned + pool.idle == pool.total, "a block is lost"
    if memory.cache is not None:
        memory.cache.check()
    else:
        assert pool.idle == 0, "an idle block without a cache"


def _check_snapshots(
    cache: PrefixCache, snapshots: SnapshotPool, keeper: StateKeeper, in_flight: Iterable[Plan]
) -> None:
    """Once its round has landed, a snapshot is held only beside the K/V before it."""
    snapshots.check()
    coming = keeper.waiting() | {save.name for plan in in_flight for save in plan.every_save}
    assert all(map(cache.knows, snapshots.names - coming)), "a snapshot is held without its block"
