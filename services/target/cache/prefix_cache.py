"""Finds K/V blocks that hold a request's first tokens already.

A block's name is sha256 over (tenant salt, model, drafter checksum), the name of the block before it and its
token ids, so equal names mean equal content in the target's K/V and in the draft context alike. Only full
blocks of committed tokens enter.
"""

from array import array
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from services.target.cache.blocks import BlockPool
from services.target.cache.snapshots import SnapshotPool


class Hit(NamedTuple):
    """Blocks that a request can go on behind, and how many are known; behind the others a snapshot is missing."""

    blocks: list[int]
    known: int


NO_HIT = Hit([], 0)


class PrefixCache:
    """Names blocks of a pool and finds them again; eviction is the pool's. A snapshot goes with its block.

    Since the start it found `hit_tokens` for requests that were admitted, and took a name away `evictions` times.
    """

    def __init__(
        self,
        pool: BlockPool,
        model_revision: bytes,
        drafter_checksum: bytes,
        snapshots: SnapshotPool | None = None,
    ) -> None:
        """With `snapshots`, K/V alone is no hit: the model has recurrent states."""
        self._pool = pool
        self.snapshots = snapshots
        self._identity = _framed(model_revision) + _framed(drafter_checksum)
        self._by_name: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self.hit_tokens = self.evictions = 0
        pool.evict = self._forget

    def __len__(self) -> int:
        """Blocks that have a name."""
        return len(self._names)

    def extend(self, names: list[bytes], tokens: Sequence[int], salt: bytes) -> None:
        """Appends to `names` the names of the full blocks of `tokens` that it lacks."""
        size = self._pool.block_size
        previous = names[-1] if names else sha256(self._identity + _framed(salt)).digest()
        for start in range(len(names) * size, len(tokens) - size + 1, size):
            previous = sha256(previous + array("I", tokens[start : start + size]).tobytes()).digest()
            names.append(previous)

    def match(self, names: Sequence[bytes], tokens: int) -> Hit:
        """Find the longest known prefix of a request of `tokens` tokens, as far as it can go on from it.

        The hit never covers all tokens: the last one is always computed, because its logits choose the next token.
        """
        found: list[int] = []
        for name in names[: max(tokens - 1, 0) // self._pool.block_size]:
            block = self._by_name.get(name)
            if block is None:
                break
            found.append(block)
        known = len(found)
        while found and not self._resumes(names, found):
            found.pop()
        return Hit(found, known)

    def _resumes(self, names: Sequence[bytes], found: list[int]) -> bool:
        """Whether there is a state to go on from behind so many blocks, or behind fewer, to which `found` is cut."""
        if self._pool.windows is not None:
            del found[self._pool.windows.reached(found) :]
        return not found or self.snapshots is None or self.snapshots.find(names[len(found) - 1]) is not None

    def knows(self, name: bytes) -> bool:
        """Whether there is a block of that name."""
        return name in self._by_name

    def insert(self, name: bytes, block: int) -> None:
        """Names an owned block whose tokens are all committed and computed; a name keeps a block that is owned.

        One that nobody owns gives way, for it would be evicted sooner: a hybrid computes anew what it has no state for.
        """
        known = self._by_name.get(name)
        if block in self._names or (known is not None and self._pool.owners(known)):
            return
        if known is not None:
            del self._names[known]
            self._pool.free_idle(known)
        self._pool.mark_cached(block)
        self._by_name[name] = block
        self._names[block] = name

    def check(self) -> None:
        """Raises AssertionError when names and blocks disagree."""
        assert len(self._by_name) == len(self._names), "names and blocks differ in number"
        assert all(self._by_name[name] == block for block, name in self._names.items()), "a name points elsewhere"

    def _forget(self, block: int) -> None:
        name = self._names.pop(block)
        del self._by_name[name]
        self.evictions += 1
        if self.snapshots is not None:
            self.snapshots.forget(name)


def _framed(part: bytes) -> bytes:
    """The part behind its length, so that two different lists of parts never join to the same bytes."""
    return len(part).to_bytes(8, "little") + part
