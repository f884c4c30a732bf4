"""The bounded buffer between a target's frames and one client's stream."""

import asyncio
from collections.abc import Callable

from services.gateway.targets.messages import End, Update


class Outbox:
    """Holds updates that the client has not taken yet; several of them are joined into one.

    The session's reader puts, the client's handler takes. The reader never waits: an outbox that overflows calls
    `on_overflow` once and drops later updates. So a client that stalls loses only its own stream.
    """

    def __init__(self, limit: int, on_overflow: Callable[[], None]) -> None:
        """Holds at most `limit` tokens."""
        self._limit = limit
        self._on_overflow = on_overflow
        self._pending: list[Update] = []
        self._tokens = 0
        self._ready = asyncio.Event()
        self.overflowed = False

    def put(self, update: Update) -> None:
        """Adds news; an update with an end is the last."""
        if self.overflowed:
            return
        self._pending.append(update)
        self._tokens += len(update.token_ids)
        self._ready.set()
        if self._tokens > self._limit:
            self.overflowed = True
            self._on_overflow()

    async def take(self) -> Update:
        """All news so far as one update; waits for the first."""
        await self._ready.wait()
        self._ready.clear()
        pending, self._pending, self._tokens = self._pending, [], 0
        return pending[0] if len(pending) == 1 else _joined(pending)

    def end(self, end: End) -> None:
        """Adds an end without tokens."""
        self.put(Update(0, end=end))


def _joined(updates: list[Update]) -> Update:
    """One update of several that follow on one another."""
    return Update(
        position=next((one.position for one in updates if one.token_ids), 0),
        token_ids=tuple(token for one in updates for token in one.token_ids),
        logprobs=tuple(position for one in updates for position in one.logprobs),
        end=updates[-1].end,
        drafted=sum(one.drafted for one in updates),
        accepted=sum(one.accepted for one in updates),
        rounds=tuple((len(one.token_ids), one.accepted) for one in updates if one.token_ids or not one.scores),
        scores=tuple(position for one in updates for position in one.scores),
        scored_from=next((one.scored_from for one in updates if one.scores), 0),
    )
