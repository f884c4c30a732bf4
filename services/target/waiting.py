"""The queue: first come first served within a priority, with ageing, and bounded by its owner.

A request of priority p sorts as if it had arrived p * ageing seconds earlier. The order of two requests never
changes while they wait, so a heap keeps it, and nobody starves: a request is ahead of all that come later than
its priority gap times the ageing time.
"""

from heapq import heappop, heappush

from services.target.request import Request, State

_MOST_PRIORITY = 100


def order_of(arrived: float, priority: int, ageing_s: float, uid: int) -> tuple[float, int]:
    """Sort key of a request; smaller runs first."""
    return arrived - max(-_MOST_PRIORITY, min(_MOST_PRIORITY, priority)) * ageing_s, uid


class WaitingQueue:
    """Requests that wait for a slot. Leaving from the middle costs O(1); the entry is dropped when it surfaces."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, int], Request]] = []
        self._count = 0
        self.tokens = 0

    def __len__(self) -> int:
        return self._count

    def push(self, request: Request) -> None:
        """Adds a request, or puts a preempted one back in its old place."""
        heappush(self._heap, (request.order, request))
        self._count += 1
        self.tokens += len(request.tokens)

    def head(self) -> Request | None:
        """The request whose turn it is."""
        while self._heap and self._heap[0][1].state is not State.WAITING:
            heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def pop(self) -> Request:
        """Takes the head."""
        request = self.head()
        if request is None:
            raise IndexError("the queue is empty")
        heappop(self._heap)
        self._forget(request)
        return request

    def left(self, request: Request) -> None:
        """Notes that a waiting request has ended; its state is no longer WAITING."""
        self._forget(request)

    def _forget(self, request: Request) -> None:
        self._count -= 1
        self.tokens -= len(request.tokens)
