"""The queue: preempted requests of all tenants go first, by `order_of`; then tenants take turns, one request each.

Within a tenant requests go by `order_of` too: one of priority p sorts as if it had arrived p * ageing seconds earlier.
So no request starves: a later one goes first only if its priority makes up for its delay.
"""

from collections import OrderedDict
from heapq import heappop, heappush

from services.common.request.limits import LIMITS
from services.target.core.request import Request, State

AGEING_S = 0.3
"""Seconds of waiting that a level of priority counts as. The widest gap, 200 levels, counts as a minute."""

Heap = list[tuple[tuple[float, int], Request]]


def order_of(arrived: float, priority: int, ageing_s: float, uid: int) -> tuple[float, int]:
    """Sort key of a request for its whole life; smaller runs first and is called older."""
    return arrived - max(-LIMITS.priority, min(LIMITS.priority, priority)) * ageing_s, uid


class WaitingQueue:
    """Requests that wait for a slot. Leaving costs O(1): the entry is dropped when it comes to the head."""

    def __init__(self) -> None:
        self._preempted: Heap = []
        self._turns: OrderedDict[str, Heap] = OrderedDict()
        self.count = self.tokens = 0
        """Requests, and tokens of their prompts."""

    def push(self, request: Request) -> None:
        """Adds a request, new or preempted."""
        heap = self._preempted if request.preemptions else self._turns.setdefault(request.spec.tenant, [])
        heappush(heap, (request.order, request))
        self.count += 1
        self.tokens += len(request.tokens)

    def head(self) -> Request | None:
        """The request that is admitted next."""
        first = _first(self._preempted)
        while first is None and self._turns:
            tenant = next(iter(self._turns))
            first = _first(self._turns[tenant])
            if first is None:
                del self._turns[tenant]
        return first

    def pop(self) -> Request:
        """Takes the head; the next turn is that of another tenant."""
        request = self.head()
        if request is None:
            raise IndexError("the queue is empty")
        if request.preemptions:
            heappop(self._preempted)
        else:
            heappop(self._turns[request.spec.tenant])
            self._turns.move_to_end(request.spec.tenant)
        self._forget(request)
        return request

    def waits(self, tenant: str) -> bool:
        """Whether a request of this tenant waits that never ran."""
        return tenant in self._turns and _first(self._turns[tenant]) is not None

    def left(self, request: Request) -> None:
        """Notes that a waiting request ends; its state is no longer WAITING when the head is asked for."""
        self._forget(request)

    def _forget(self, request: Request) -> None:
        self.count -= 1
        self.tokens -= len(request.tokens)
        if not self.count:  # nobody asks an empty queue for its head, which would drop those that have ended
            self._preempted.clear()
            self._turns.clear()


def _first(heap: Heap) -> Request | None:
    """The first request that still waits; drops those before it that have ended."""
    while heap and heap[0][1].state is not State.WAITING:
        heappop(heap)
    return heap[0][1] if heap else None
