"""Who may have how many connections and calls: with a key as its tenant, without one as its address."""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from services.common.serving.front.allowance import Allowances
from services.common.serving.front.frames import Headers, ProtocolError

if TYPE_CHECKING:
    from services.common.serving.front.relay import Relay

Find = Callable[[str], str | None]
"""Gives the name of who has a key, or nothing for an unknown one."""

Dropped = Callable[[str], None]

CONNECTIONS = 2048
"""Open at once."""

STRANGERS = 256
"""Connections of one address that have shown no key, open at once; where nobody needs one, half of all."""

QUIET_S = 1.0
"""A stranger's connection with a call that was quiet for longer, and for longest, ends for a new one where all have
calls. One without a call ends at any age: hundreds that do nothing must not refuse the next that asks.
"""

UNUSED, UNREAD, BUSY = range(3)
"""What a connection claims of its place: it has no call; it waits to be read; it has a call. The least goes first."""

DESCRIPTORS_A_CONNECTION = 8
"""A connection takes three, the client's and two of the way to gRPC; HTTP may take half of all."""

REFUSALS = 64
"""Calls without a known key after which a connection ends."""

CALLS_A_SECOND, CALLS_AT_ONCE = 500.0, 512.0
"""Of one tenant; more wait."""

A_CONNECTION, AN_OFFENCE = 0.25, 16.0
"""What a connection, and one that had to end, count as of the calls without a key of its address."""

LONGEST_S = 1.0
"""That a new connection waits for what others of its address did."""

A_CALL_BYTES = 8192
"""Expanded headers that count as one call more."""

STRANGE_CALLS_A_SECOND, STRANGE_CALLS_AT_ONCE = 50.0, 64.0
"""Of one address without a key."""


class Doorman:
    """Knows every connection of one listener."""

    def __init__(
        self,
        find: Find | None,
        clock: Callable[[], float],
        most: int = CONNECTIONS,
        dropped: Dropped = lambda reason: None,
        proof: bool = False,
        probes: bool = False,
    ) -> None:
        """Without `find` nobody needs a key, and calls count by address; at most `most` connections are open.

        With `proof` those who have not proven who they are are strangers. Calls of `probes` are short and few, so none
        keeps its connection from making room.

        `dropped` hears of each that ends, or is turned away, for `room`, its calls without known `keys`, or `protocol`.
        """
        self._find = find
        self._dropped = dropped
        self._most = most
        self._strange = proof or find is not None
        self._quiet_s, self._a_connection = (0.0, 1.0) if probes else (QUIET_S, A_CONNECTION)
        self._clock = clock
        self._strange_calls = Allowances(STRANGE_CALLS_A_SECOND, STRANGE_CALLS_AT_ONCE, clock)
        self._calls = self._strange_calls if probes else Allowances(CALLS_A_SECOND, CALLS_AT_ONCE, clock)
        self._strangers: defaultdict[str, list[Relay]] = defaultdict(list)
        self._all: set[Relay] = set()

    @property
    def relays(self) -> list[Relay]:
        """All connections."""
        return [*self._all]

    def knows(self, relay: Relay) -> bool:
        """It has entered, and has not left."""
        return relay in self._all

    def enter(self, relay: Relay) -> bool:
        """Lets a connection in, for which another one of the address that has most may have to go.

        False when there is no room.
        """
        theirs = self._strangers[relay.address]
        if len(theirs) >= (STRANGERS if self._strange else self._most // 2):
            room = self._evicted(theirs)
        elif len(self._all) >= min(self._most, most_connections()):
            room = self._evicted(max(self._strangers.values(), key=len, default=[]))
        else:
            room = True
        if room:
            self._strangers[relay.address].append(relay)
            self._all.add(relay)
        else:
            self._dropped("room")
        self._forget(relay.address)
        return room

    def patience(self, relay: Relay) -> float:
        """Seconds that a new connection waits: those who asked for too much before are heard later."""
        return min(LONGEST_S, self._strange_calls.take(relay.address, self._a_connection))

    def blame(self, relay: Relay) -> None:
        """A connection had to end for what it sent."""
        self._dropped("keys" if relay.refusals > REFUSALS else "protocol")
        self._strange_calls.take(relay.address, AN_OFFENCE)

    def _evicted(self, strangers: Sequence[Relay]) -> bool:
        least = min(strangers, key=lambda each: (each.claim, each.heard), default=None)
        if least is None or (least.claim == BUSY and self._clock() - least.heard < self._quiet_s):
            return False
        self._dropped("room")
        self.leave(least)
        least.abort()
        return True

    def leave(self, relay: Relay) -> None:
        """A connection has ended."""
        self._all.discard(relay)
        self._known(relay)

    def judge(self, relay: Relay, headers: Headers) -> float:
        """Seconds for which a connection is to be read no further, after the headers of a call.

        Raises:
            ProtocolError: it has asked without a key, or unproven, too often.
        """
        name = self._name(headers) if self._find else relay.address if relay.proven else None
        if name is not None:
            if self._strange:
                self.recognise(relay)
            relay.known = True
            return self._calls.take(name, _cost(headers))
        relay.refusals += 1
        if relay.refusals > REFUSALS:
            raise ProtocolError("too many calls without a key")
        return self._strange_calls.take(relay.address, _cost(headers))

    def recognise(self, relay: Relay) -> None:
        """It is no stranger's any more."""
        if not relay.known:
            self._known(relay)
        relay.known = True

    def _name(self, headers: Headers) -> str | None:
        assert self._find is not None, "asked only where keys are needed"
        for name, value in headers:
            if name == b"authorization" and value.startswith(b"Bearer "):
                return self._find(value.removeprefix(b"Bearer ").decode("ascii", "replace"))
        return None

    def _known(self, relay: Relay) -> None:
        theirs = self._strangers.get(relay.address, [])
        if relay in theirs:
            theirs.remove(relay)
        self._forget(relay.address)

    def _forget(self, address: str) -> None:
        if not self._strangers[address]:
            del self._strangers[address]


def _cost(headers: Headers) -> float:
    """In calls: headers that are small on the wire and large when expanded count as what it takes to expand them."""
    return 1.0 + sum(len(name) + len(value) + 32 for name, value in headers) / A_CALL_BYTES


def most_connections() -> int:
    """Connections for which there are descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS
    return max(1, min(CONNECTIONS, soft // DESCRIPTORS_A_CONNECTION))
