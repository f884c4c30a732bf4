"""Gives a request its blocks from admission to its end."""

from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import NO_HIT, Hit, PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.core.request import Request


class KVCacheManager:
    """Moves blocks between the pool, the prefix cache and requests."""

    def __init__(self, pool: BlockPool, cache: PrefixCache | None) -> None:
        self.pool = pool
        self.cache = cache

    def name(self, request: Request) -> None:
        """Computes the names of the full blocks of a request's tokens, so that admission only looks them up."""
        if self.cache is not None:
            self.cache.extend(request.hashes, request.tokens, request.spec.salt)

    def admit(self, request: Request, tokens: int, spare: int) -> bool:
        """Gives a request blocks for `tokens` tokens, cached ones first; False if less than `spare` would remain.

        A prompt that is scored is computed whole: nothing tells the scores of positions that are in K/V already.
        """
        reads = self.cache is not None and not request.present_spec().scored
        if self.pool.windows is not None and not self.pool.windows.has_room(request):
            return False
        hit = self.cache.match(request.hashes, len(request.tokens)) if self.cache is not None and reads else NO_HIT
        fresh = self.pool.blocks_for(tokens) - len(hit.blocks)
        # An idle block that is hit is no longer available, so it counts like a fresh one.
        if fresh + self.pool.count_idle(hit.blocks) + spare > self.pool.available:
            return False
        self.pool.share(hit.blocks)
        request.blocks, request.hashed_blocks = list(hit.blocks), len(hit.blocks)
        request.cached_tokens = request.computed = len(hit.blocks) * self.pool.block_size
        if self.pool.windows is not None:
            self.pool.windows.admit(request)
        request.blocks += self.pool.take(fresh)
        request.prefill_to = request.verified = len(request.tokens)
        if self.cache is not None:
            self.cache.hit_tokens += request.cached_tokens
            self._resume(request, hit, self.cache.snapshots)
        return True

    def _resume(self, request: Request, hit: Hit, snapshots: SnapshotPool | None) -> None:
        """Notes from which snapshot a request goes on, and where one is missing that others could go on from.

        A chunk that ends there costs a forward, so it must spare them more than a request's end leaves behind.
        """
        request.kept, request.branch, request.snapshot = request.cached_tokens, 0, None
        if snapshots is None:
            return
        if hit.blocks:
            request.snapshot = snapshots.use(request.hashes[len(hit.blocks) - 1])
        branch = snapshots.folded(hit.known * self.pool.block_size)
        if request.cached_tokens + 2 * snapshots.grid <= branch < snapshots.folded(request.prefill_to):
            request.branch = branch

    def lacking(self, request: Request, tokens: int) -> int:
        """Blocks that a request lacks to hold `tokens` tokens."""
        return max(0, self.pool.blocks_for(tokens) - len(request.blocks))

    def grow(self, request: Request, blocks: int) -> tuple[int, ...]:
        """Appends fresh blocks to a request."""
        fresh = self.pool.take(blocks)
        request.blocks += fresh
        return tuple(fresh)

    def remember(self, request: Request, computed: int) -> None:
        """Caches the full blocks among the first `computed` tokens, all of them committed and in K/V."""
        full = computed // self.pool.block_size
        if self.cache is None or full <= request.hashed_blocks:
            return
        if full > len(request.hashes):
            self.cache.extend(request.hashes, request.tokens, request.spec.salt)
        for index in range(request.hashed_blocks, full):
            self.cache.insert(request.hashes[index], request.blocks[index])
        request.hashed_blocks = full

    def release(self, request: Request, number: int) -> None:
        """Takes all blocks from a request; they are free once round `number` has finished."""
        if self.pool.windows is not None:
            self.pool.windows.leave(request)
        self.pool.release(request.blocks, number)
        request.blocks = []
        request.computed = request.hashed_blocks = 0
