"""The pool of snapshots of recurrent states: places for them, and the names by which they are found (I7)."""

from collections import OrderedDict


class SnapshotPool:
    """Places 0 .. `total` - 1. One is free, or holds the state at the end of the K/V block that it is named by.

    A device saves and restores in the order of plans. So a place may be given again at once, and a snapshot may be
    found before it has been written, as long as nothing is planned in front of its save. The least recently used goes
    first.
    """

    def __init__(self, total: int, grid: int, size: int = 0) -> None:
        """States are whole blocks of `grid` positions; a snapshot has `size` bytes."""
        if total < 1 or grid < 1:
            raise ValueError(f"a pool needs at least one snapshot on a grid, not {total} on {grid}")
        self.total, self.grid = total, grid
        self.hits = self.evictions = 0
        self._size = size
        self._free = list(range(total - 1, -1, -1))
        self._held: OrderedDict[bytes, int] = OrderedDict()

    @property
    def free(self) -> int:
        """Places that hold nothing."""
        return len(self._free)

    @property
    def held(self) -> int:
        """Snapshots that can be found."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """Bytes of the snapshots that can be found."""
        return len(self._held) * self._size

    @property
    def names(self) -> frozenset[bytes]:
        """Names of all snapshots that can be found."""
        return frozenset(self._held)

    def folded(self, tokens: int) -> int:
        """Positions that a state holds once a round has begun, or a chunk has ended, after so many tokens."""
        return tokens // self.grid * self.grid

    def find(self, name: bytes) -> int | None:
        """Place of the snapshot of that name."""
        return self._held.get(name)

    def use(self, name: bytes) -> int:
        """Place of a held snapshot from which a request goes on now."""
        self._held.move_to_end(name)
        self.hits += 1
        return self._held[name]

    def take(self, name: bytes) -> int | None:
        """A place for a snapshot of that name, the least recently used one's if none is free; None if it is held."""
        if name in self._held:
            self._held.move_to_end(name)
            return None
        if not self._free:
            self.forget(next(iter(self._held)))
        self._held[name] = self._free.pop()
        return self._held[name]

    def forget(self, name: bytes) -> None:
        """Frees the place of the snapshot of that name, if it is held."""
        place = self._held.pop(name, None)
        if place is not None:
            self._free.append(place)
            self.evictions += 1

    def check(self) -> None:
        """Raises AssertionError when a place is free or held twice, or lost (I7)."""
        places = sorted([*self._free, *self._held.values()])
        assert places == list(range(self.total)), f"snapshots are in {places} of {self.total} places"
