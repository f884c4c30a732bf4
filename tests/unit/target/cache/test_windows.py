"""Places of layers with a window: a request holds its window and what it writes, and a hit needs the last window."""

import pytest

from services.target.cache.blocks import BlockPool
from services.target.cache.manager import KVCacheManager
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.windows import WindowPlaces
from services.target.core.request import Request
from tests.unit.target.scheduling.scheduling import spec

BLOCK, WINDOW, AHEAD = 4, 10, 8
MOST = WindowPlaces.needed(WINDOW, AHEAD, BLOCK)


def request_of(uid: int, tokens: tuple[int, ...], limit: int = 80) -> Request:
    asked = spec(ids=tokens, tokens=limit - len(tokens))
    return Request(uid, asked, None, 0.0, limit, frozenset(), (0.0, uid), list(tokens))


class Memory:
    """A pool with places, its cache, and requests that are computed in chunks of AHEAD tokens."""

    def __init__(self, places: int) -> None:
        self.windows = WindowPlaces(places, 100, BLOCK, WINDOW, AHEAD)
        self.pool = BlockPool(100, BLOCK, self.windows)
        self.manager = KVCacheManager(self.pool, PrefixCache(self.pool, b"m", b"d"))

    def admitted(self, request: Request) -> bool:
        self.manager.name(request)
        return self.manager.admit(request, request.limit, 0)

    def compute(self, request: Request, end: int) -> int:
        """Computes a prompt up to there; returns the most places that were held."""
        most = 0
        while request.computed < end:
            stop = min(end, request.computed + AHEAD)
            self.windows.see(request, request.computed, stop)
            most = max(most, len(self.windows.held(request)))
            request.computed = stop
            self.manager.remember(request, stop)
            self.windows.check([request], self.pool.is_cached)
        return most

    def leave(self, request: Request) -> None:
        self.manager.release(request, 0)


TEXT = tuple(range(2, 62))


@pytest.mark.parametrize("window", [1, 4, 7, 24])
def test_places_hold_a_window_and_what_is_written(window: int) -> None:
    """However the tokens lie in blocks."""
    ahead = 8
    for start in range(window, 50):
        first, stop = (start + 1 - window) // BLOCK, -(-(start + ahead) // BLOCK)
        assert stop - first <= WindowPlaces.needed(window, ahead, BLOCK) <= -(-(window + ahead) // BLOCK) + 1


def test_a_long_prompt_holds_no_more_than_its_window_and_a_chunk() -> None:
    memory, request = Memory(MOST), request_of(1, TEXT)
    assert memory.admitted(request)
    assert 0 < memory.compute(request, 60) <= MOST
    assert memory.windows.levels[1] <= MOST < len(request.blocks)


def test_admission_waits_until_places_are_left_for_all_that_a_request_may_hold() -> None:
    memory, first, second, short = Memory(MOST + 2), request_of(1, TEXT), request_of(2, TEXT), request_of(3, (7, 8), 8)
    assert memory.admitted(first)
    assert not memory.admitted(second), "two places are left"
    assert memory.admitted(short), "which never has more tokens than they hold"
    memory.leave(first)
    assert memory.admitted(second)


def test_a_hit_goes_as_far_as_the_window_before_it_has_places() -> None:
    memory, first = Memory(3 * MOST), request_of(1, TEXT)
    assert memory.admitted(first)
    memory.compute(first, 60)
    memory.leave(first)
    again, shorter = request_of(2, TEXT), request_of(3, (*TEXT[:20], 99, 98))
    assert memory.admitted(again)
    assert again.cached_tokens == 56, "all but the block of the last token"
    assert memory.admitted(shorter)
    assert shorter.cached_tokens == 20, "what others no longer see has kept its places, for there was room"


def test_without_the_blocks_of_the_last_window_there_is_no_hit() -> None:
    """Places of the request that has left are taken by another one, the earliest tokens' first."""
    memory, first, other = Memory(2 * MOST), request_of(1, TEXT), request_of(2, TEXT[::-1])
    assert memory.admitted(first)
    memory.compute(first, 60)
    memory.leave(first)
    idle = memory.windows.levels[2]
    assert memory.admitted(other)
    memory.compute(other, 60)
    assert memory.windows.evictions > 0
    memory.leave(other)
    again = request_of(3, TEXT)
    assert memory.admitted(again)
    assert (idle > 3, again.cached_tokens) == (True, 0)


@pytest.mark.parametrize(("kept", "reached"), [((), 0), ((0, 1), 2), ((3, 4, 5), 6), ((4, 5), 0), ((0, 1, 3, 4, 5), 6)])
def test_reached_counts_blocks_whose_last_window_has_places(kept: tuple[int, ...], reached: int) -> None:
    """A row behind six blocks of four sees nine tokens before it, which lie in three blocks."""
    memory, request = Memory(3 * MOST), request_of(1, TEXT)
    assert memory.admitted(request)
    for index in kept:
        memory.windows._hold(request.blocks[index])
    assert memory.windows.reached(request.blocks[:6]) == reached


def test_places_for_less_than_one_request_are_refused() -> None:
    with pytest.raises(ValueError, match="hold no request"):
        WindowPlaces(MOST - 1, 100, BLOCK, WINDOW, AHEAD)
