"""Gives a request its blocks from admission to its end, and keeps its recurrent state.

A state is kept after the prompt, and when the request leaves its slot. Nothing is computed for it but where a prompt
leaves known text whose end has no snapshot: there a chunk ends, once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import NO_HIT, Hit, PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.core.plan import Chunk, Plan, Save
from services.target.core.request import Request, State

SPACING = 2048
"""Prompt tokens after which a long prompt's state is kept, so that one with another end goes on from there."""


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


class StateKeeper:
    """Plans saves for a model with recurrent layers; for others it does nothing.

    A save is named when it is planned. It counts once its round has landed, if the K/V before it is known by then, and
    is forgotten when that round fails.
    """

    def __init__(self, cache: PrefixCache | None, block_size: int) -> None:
        self._cache, self._block_size = cache, block_size
        self.leaving: list[Save] = []

    @property
    def _pool(self) -> SnapshotPool | None:
        return None if self._cache is None else self._cache.snapshots

    def after(self, chunks: Sequence[Chunk], requests: Iterable[Request | None]) -> tuple[Chunk, ...]:
        """The chunks, those after which the state of their request is to be kept with a save."""
        if self._pool is None:
            return tuple(chunks)
        paired = zip(chunks, requests, strict=True)
        return tuple(chunk if request is None else self._after(self._pool, chunk, request) for chunk, request in paired)

    def leave(self, request: Request, in_flight: Sequence[Plan]) -> None:
        """Keeps the state of a request that leaves its slot, before the slot is given to another one."""
        if self._pool is None or request.slot is None:
            return
        folded = self._folded(self._pool, request, in_flight)
        if folded is not None and folded <= request.hashed_blocks * self._block_size:
            self.leaving += self._save(self._pool, request, folded)

    def take(self) -> tuple[Save, ...]:
        """Saves of the slots that were left since the last call."""
        leaving, self.leaving = tuple(self.leaving), []
        return leaving

    def landed(self, plan: Plan) -> None:
        """A round was committed: states that it kept count, unless the K/V before them did not come to be known."""
        self._forget(save for save in plan.every_save if self._cache is None or not self._cache.knows(save.name))

    def failed(self, plan: Plan) -> None:
        """A round failed: nothing that it kept counts, nor what slots that it may have computed were to keep."""
        self._forget((*plan.every_save, *self.take()))

    def waiting(self) -> frozenset[bytes]:
        """Names of the saves that no plan has yet."""
        return frozenset(save.name for save in self.leaving)

    def _after(self, pool: SnapshotPool, chunk: Chunk, request: Request) -> Chunk:
        end = chunk.start + len(chunk.token_ids)
        if not chunk.last and end != request.branch and pool.folded(end) - request.kept < SPACING:
            return chunk
        return replace(chunk, saves=self._save(pool, request, pool.folded(end)))

    def _folded(self, pool: SnapshotPool, request: Request, in_flight: Sequence[Plan]) -> int | None:
        """Positions in the state once all rounds in flight are over; None if a length in them is not known yet."""
        rounds = sum(request.slot in plan.rows for plan in in_flight)
        if request.state is State.PREFILL or rounds == 1:
            return pool.folded(request.computed)
        return pool.folded(request.verified) if rounds == 0 else None

    def _save(self, pool: SnapshotPool, request: Request, folded: int) -> tuple[Save, ...]:
        assert self._cache is not None and request.slot is not None
        if folded == 0 or folded % self._block_size:
            return ()
        self._cache.extend(request.hashes, request.tokens, request.spec.salt)
        name = request.hashes[folded // self._block_size - 1]
        place = pool.take(name)
        request.kept = folded
        return () if place is None else (Save(request.slot, folded, place, name),)

    def _forget(self, saves: Iterable[Save]) -> None:
        for save in saves:
            if self._pool is not None and self._pool.find(save.name) == save.snapshot:
                self._pool.forget(save.name)
