"""Where blocks stand in the layers with a window, which keep the last tokens of each sequence and little else.

A block has one id for all layers, by which tables, the prefix cache and other processes know it. Layers with a window
have fewer places than there are blocks, and a map on the device says which block has which. A request holds places
from the first token that its next rows see to the last that they write. Those behind its window stay where they are
while nobody needs their place, so that another request may go on from there.

A round's changes are applied on the device before it, in the order of rounds, so no round still reads a place that
another block gets.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from services.target.core.plan import Move
from services.target.core.request import Request


class WindowPlaces:
    """Places 1 .. `total`, each free, held by requests, or idle: that of a cached block which no request holds.

    Rows see the last `window` tokens, their own included. A request writes at most `ahead` tokens behind those that are
    committed, as a chunk of its prompt or as rounds in flight.
    """

    def __init__(self, total: int, blocks: int, block_size: int, window: int, ahead: int) -> None:
        if total < self.needed(window, ahead, block_size):
            raise ValueError(f"{total} places of {block_size} tokens hold no request with a window of {window}")
        self.total, self.window, self.evictions = total, window, 0
        self._size, self._ahead = block_size, ahead
        self._free = list(range(total, 0, -1))
        self._place = [0] * (blocks + 1)
        self._holders = [0] * (blocks + 1)
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._held: dict[int, range] = {}
        self._reserved: dict[int, int] = {}
        self._taken = 0
        self._moves: dict[int, int] = {}

    def anew(self) -> "WindowPlaces":
        """Return places of the same sizes, none of which is taken."""
        return WindowPlaces(self.total, len(self._place) - 1, self._size, self.window, self._ahead)

    @staticmethod
    def needed(window: int, ahead: int, block_size: int) -> int:
        """Places for window + ahead tokens of a sequence, which may begin and end within a block."""
        return -(-(window + ahead) // block_size) + 1

    @property
    def levels(self) -> tuple[int, int, int]:
        """Places that are free, held and idle."""
        free, idle = len(self._free), len(self._idle)
        return free, self.total - free - idle, idle

    def has_room(self, request: Request) -> bool:
        """Whether places are left for all that a request may hold at once."""
        return self._taken + self._most(request) <= self.total

    def admit(self, request: Request) -> None:
        """Reserves places for a request, and holds those of cached tokens that its first row sees."""
        self._reserved[request.uid] = most = self._most(request)
        self._taken += most
        self._held[request.uid] = range(0)
        self.see(request, request.cached_tokens, request.cached_tokens)

    def see(self, request: Request, start: int, end: int) -> None:
        """A request's next rows stand at positions start .. end - 1: it holds what they see and write, and no more."""
        first, stop = max(0, start + 1 - self.window) // self._size, -(-end // self._size)
        held = self._held[request.uid]
        stop = min(max(stop, held.stop), len(request.blocks))
        self._drop(request.blocks[held.start : min(first, held.stop)], request, held.start)
        for index in range(max(first, held.stop), stop):
            self._hold(request.blocks[index])
        self._held[request.uid] = range(first, stop)

    def leave(self, request: Request) -> None:
        """A request gives up its blocks; it must still have them."""
        held = self._held.pop(request.uid)
        self._drop(request.blocks[held.start : held.stop], request, held.start)
        self._taken -= self._reserved.pop(request.uid)

    def reached(self, blocks: Sequence[int]) -> int:
        """How many of a sequence's first blocks a request can go on behind: what its first row sees has places."""
        best = run = 0
        for count, block in enumerate(blocks, 1):
            run = run + 1 if self._place[block] else 0
            if run >= count - max(0, count * self._size + 1 - self.window) // self._size:
                best = count
        return best

    def forget(self, block: int) -> None:
        """A block that nobody owns loses its content."""
        if block in self._idle:
            del self._idle[block]
            self._give_back(block)

    def take_moves(self) -> tuple[Move, ...]:
        """Changes since the last call; the last of each block."""
        moves, self._moves = tuple(Move(*pair) for pair in self._moves.items()), {}
        return moves

    def held(self, request: Request) -> range:
        """Numbers of the blocks of a request that have places for it."""
        return self._held[request.uid]

    def check(self, requests: Sequence[Request], cached: Callable[[int], bool]) -> None:
        """Raises AssertionError when a place is in two places or in none, or a request holds too much (I7)."""
        given = [place for place in self._place if place]
        assert len(set(given)) == len(given) and not set(given) & set(self._free), "a place is in two places"
        assert len(given) + len(self._free) == self.total == sum(self.levels), "a place is lost"
        holders = [0] * len(self._holders)
        assert self._held.keys() == {one.uid for one in requests} == self._reserved.keys(), "somebody else holds places"
        for request in requests:
            held = self._held[request.uid]
            assert len(held) <= self._reserved[request.uid], f"request {request.uid} holds {len(held)} places"
            for index in held:
                holders[request.blocks[index]] += 1
        assert holders == self._holders, "holders are miscounted"
        for block, place in enumerate(self._place):
            assert bool(place) == (holders[block] > 0 or block in self._idle), (
                f"block {block} has no reason for {place}"
            )
            assert holders[block] == 0 or block not in self._idle, f"block {block} is held and idle"
        assert all(map(cached, self._idle)), "an idle place is not of a cached block"

    def _most(self, request: Request) -> int:
        return min(self.needed(self.window, self._ahead, self._size), -(-request.limit // self._size))

    def _hold(self, block: int) -> None:
        if self._holders[block] == 0:
            if self._place[block]:
                del self._idle[block]
            else:
                self._place[block] = self._moves[block] = self._fresh()
        self._holders[block] += 1

    def _drop(self, blocks: Sequence[int], request: Request, first: int) -> None:
        for index, block in enumerate(blocks, first):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if index < request.hashed_blocks and self.is_cached(block):
                self._idle[block] = None
            else:
                self._give_back(block)

    def _fresh(self) -> int:
        if not self._free:
            block, _ = self._idle.popitem(last=False)
            self.evictions += 1
            self._give_back(block)
        return self._free.pop()

    def _give_back(self, block: int) -> None:
        self._free.append(self._place[block])
        self._place[block] = self._moves[block] = 0

    is_cached: Callable[[int], bool] = staticmethod(lambda block: False)
    """Whether a block's content outlives its owners; the pool of blocks says so."""
