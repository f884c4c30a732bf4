"""Keeps recurrent states of requests.

A state is kept after the prompt, and when the request leaves its slot. Nothing is computed for it but where a prompt
leaves known text whose end has no snapshot: there a chunk ends, once."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.core.plan import Chunk, Plan, Save
from services.target.core.request import Request, State

SPACING = 2048
"""Prompt tokens after which a long prompt's state is kept, so that one with another end goes on from there."""


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
