"""The open connections of a listener: how many there may be, and which one makes room for another."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import defaultdict
from collections.abc import Callable

from services.gateway.http.server.limits import CONNECTIONS


class Connections:
    """Gives seats. Those whose client owes a request make room, the oldest of the address that has most of them first.

    A connection on which a key was shown is the last to go, and one whose request is served never goes.
    """

    def __init__(self, most: int, dropped: Callable[[str], None] = lambda reason: None) -> None:
        """`most` may be open at once, half of them from one address without a request and without a key.

        `dropped` hears of each that ends for the sake of another, with the reason `room`.
        """
        self._most, self._dropped = most, dropped
        self._taken: set[Seat] = set()
        self._strangers: defaultdict[str, dict[Seat, None]] = defaultdict(dict)
        self._known: dict[Seat, None] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._taken)

    async def room(self) -> None:
        """Waits until another connection may be open, and has idle ones make room."""
        while len(self._taken) >= self._most:
            self._changed.clear()
            self.evict()
            await self._changed.wait()

    def evict(self, idle_s: float = 0.0) -> None:
        """Ends one connection that has been idle for so many seconds, if there is one."""
        most = max(self._strangers.values(), key=len, default=self._known)
        for seat in [*most][:1]:
            if time.monotonic() - seat.idle_since >= idle_s:
                self._end(seat)

    def seat(self, address: str, end: Callable[[], object]) -> Seat:
        """One for a connection that has no request yet; of too many such from one address the oldest ends."""
        seat = Seat(self, address, end)
        self._taken.add(seat)
        self.idle(seat)
        strangers = self._strangers[address]
        if len(strangers) > max(self._most // 2, 1):
            self._end(next(iter(strangers)))
        return seat

    def idle(self, seat: Seat) -> None:
        """Its client owes a request or the rest of one; it has been so since the first such call."""
        if seat in self._taken:
            idle = self._known if seat.known else self._strangers[seat.address]
            if seat not in idle:
                seat.idle_since = time.monotonic()
                idle[seat] = None
            self._changed.set()

    def busy(self, seat: Seat) -> None:
        """Its request is served."""
        self._known.pop(seat, None)
        if seat in self._strangers.get(seat.address, ()):
            del self._strangers[seat.address][seat]
            if not self._strangers[seat.address]:
                del self._strangers[seat.address]

    def left(self, seat: Seat) -> None:
        """The connection of a seat has ended, so another one may have it."""
        self.busy(seat)
        self._taken.discard(seat)
        self._changed.set()

    def _end(self, seat: Seat) -> None:
        self._dropped("room")
        self.busy(seat)
        seat.end()


class Seat:
    """The place of one connection."""

    def __init__(self, among: Connections, address: str, end: Callable[[], object]) -> None:
        """`end` ends the connection, whose seat is left soon after."""
        self.address = address
        self.end = end
        self.known = False
        self.idle_since = 0.0
        self._among = among

    def tell(self, busy: bool) -> None:
        """Whether a request is served."""
        if busy:
            self._among.busy(self)
        else:
            self._among.idle(self)

    def leave(self) -> None:
        """The connection has ended."""
        self._among.left(self)


def most_connections() -> int:
    """Connections that may be open at once: half of the descriptors at most, for targets need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, soft // 2)
