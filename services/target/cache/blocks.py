"""The pool of K/V blocks: ownership counts, the step fence, and idle cached blocks in LRU order (I7).

Every block is in exactly one of three places: free, owned (by requests, or by a release whose fence has not
passed), or idle (cached and owned by nobody). Block 0 is the pad block and never part of the pool.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from services.target.cache.windows import WindowPlaces

PAD_BLOCK = 0


class OutOfBlocksError(RuntimeError):
    """More blocks were asked for than are available; callers check `available` first."""


class BlockPool:
    """Blocks 1 .. `blocks`, each of `block_size` tokens. Tensors therefore hold `blocks + 1` blocks."""

    def __init__(self, blocks: int, block_size: int, windows: WindowPlaces | None = None) -> None:
        """With `windows`, layers with a window have places of their own for some of the blocks."""
        if blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs at least one block of one token, not {blocks} of {block_size}")
        self.total = blocks
        self.block_size = block_size
        self.windows = windows
        self.evict: Callable[[int], None] | None = None
        self.fenced = 0
        self.coming = 0
        self._free = list(range(blocks, 0, -1))
        self._owners = [0] * (blocks + 1)
        self._cached = bytearray(blocks + 1)
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._leaving: deque[tuple[int, tuple[int, ...]]] = deque()
        self.evictions = 0
        if windows is not None:
            windows.is_cached = self.is_cached

    @property
    def free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def idle(self) -> int:
        """Cached blocks without an owner; evicted when needed."""
        return len(self._idle)

    @property
    def owned(self) -> int:
        """Blocks with an owner, those waiting for the fence included."""
        return self.total - len(self._free) - len(self._idle)

    @property
    def levels(self) -> tuple[int, int, int]:
        """Blocks that are free, owned and idle."""
        free, idle = len(self._free), len(self._idle)
        return free, self.total - free - idle, idle

    @property
    def available(self) -> int:
        """Blocks that `take` could hand out now."""
        return len(self._free) + len(self._idle)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def take(self, count: int) -> list[int]:
        """Hands out `count` blocks to one owner, evicting the least recently used idle ones when needed."""
        if count > self.available:
            raise OutOfBlocksError(f"{count} blocks asked for, {self.available} available")
        while len(self._free) < count:
            self._evict_oldest()
        if count == 0:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        for block in taken:
            self._owners[block] = 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """Adds an owner to cached blocks."""
        for block in blocks:
            if not self._cached[block]:
                raise ValueError(f"block {block} is not cached and cannot be shared")
            if self._owners[block] == 0:
                del self._idle[block]
            self._owners[block] += 1

    def count_idle(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` have no owner."""
        return sum(1 for block in blocks if self._owners[block] == 0)

    def release(self, blocks: Sequence[int], number: int) -> None:
        """Gives up one ownership of each block, once round `number` and all before it have finished."""
        if number <= self.fenced:
            self._drop(blocks)
        elif blocks:
            self._leaving.append((number, tuple(blocks)))
            self.coming += len(blocks)

    def fence(self, number: int) -> None:
        """Frees the blocks that waited for round `number`: it and all rounds before it have finished."""
        self.fenced = max(self.fenced, number)
        while self._leaving and self._leaving[0][0] <= self.fenced:
            blocks = self._leaving.popleft()[1]
            self.coming -= len(blocks)
            self._drop(blocks)

    def mark_cached(self, block: int) -> None:
        """Keeps the content of an owned block after its last owner left."""
        if self._owners[block] == 0:
            raise ValueError(f"block {block} has no owner and cannot enter the cache")
        self._cached[block] = 1

    def is_cached(self, block: int) -> bool:
        """Whether the content of a block outlives its owners."""
        return bool(self._cached[block])

    def free_idle(self, block: int) -> None:
        """Drops the content of a cached block without an owner; `evict` is not told."""
        del self._idle[block]
        self._cached[block] = 0
        if self.windows is not None:
            self.windows.forget(block)
        self._free.append(block)

    def check(self) -> None:
        """Raises AssertionError when a block is in two places or in none (I7)."""
        free = set(self._free)
        owned = {block for block in range(1, self.total + 1) if self._owners[block] > 0}
        assert len(free) == len(self._free), "a block is free twice"
        assert not free & owned and not free & self._idle.keys() and not owned & self._idle.keys(), "in two places"
        assert len(free) + len(owned) + len(self._idle) == self.total, "a block is lost"
        assert all(self._cached[block] for block in self._idle), "an idle block is not cached"
        assert not any(self._cached[block] for block in free), "a free block is cached"
        assert min(self._owners) == 0 and self._owners[PAD_BLOCK] == 0, "the pad block is owned"

    def owners(self, block: int) -> int:
        """Number of owners of a block, releases that wait for the fence included."""
        return self._owners[block]

    def counts(self) -> Sequence[int]:
        """Numbers of owners of all blocks, the pad block first."""
        return self._owners

    def leaving(self) -> Iterable[int]:
        """Blocks whose release waits for the fence; a block is listed once for each owner that released it."""
        return (block for _, blocks in self._leaving for block in blocks)

    def _drop(self, blocks: Sequence[int]) -> None:
        # Last blocks first, so that the tail of a cached sequence is evicted before its head: the tail is of no use
        # without the head.
        for block in reversed(blocks):
            owners = self._owners[block] - 1
            if owners < 0:
                raise ValueError(f"block {block} was released more often than it was taken")
            self._owners[block] = owners
            if owners == 0:
                if self._cached[block]:
                    self._idle[block] = None
                else:
                    self._free.append(block)

    def _evict_oldest(self) -> None:
        block, _ = self._idle.popitem(last=False)
        self._cached[block] = 0
        self.evictions += 1
        if self.windows is not None:
            self.windows.forget(block)
        if self.evict is not None:
            self.evict(block)
        self._free.append(block)
