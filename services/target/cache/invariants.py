"""Checks I7: every block is in one place, and every counted owner is a request that exists."""

from collections import Counter
from collections.abc import Iterable

from services.target.cache.manager import KVCacheManager
from services.target.core.request import Request


def check_blocks(memory: KVCacheManager, running: Iterable[Request]) -> None:
    """Raises AssertionError when pool, cache and requests disagree about any block."""
    pool = memory.pool
    pool.check()
    owners = Counter(pool.leaving())
    for request in running:
        assert len(set(request.blocks)) == len(request.blocks), f"request {request.uid} owns a block twice"
        assert len(request.blocks) * pool.block_size >= request.computed, f"request {request.uid} outgrew its blocks"
        owners.update(request.blocks)
    for block in range(1, pool.total + 1):
        assert pool.owners(block) == owners[block], f"block {block}: {pool.owners(block)} owners, {owners[block]} known"
    assert pool.free + pool.owned + pool.idle == pool.total, "a block is lost"
    if memory.cache is not None:
        memory.cache.check()
    else:
        assert pool.idle == 0, "an idle block without a cache"
