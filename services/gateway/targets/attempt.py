"""One request on one target, and the bounded buffer between its frames and the client's stream."""

import asyncio
from collections.abc import Callable, Coroutine

from services.gateway.targets.messages import End, Lost, Speculation, Update

DELIVERED = "delivered"
"""What a target is told of a request that has ended, for a reason, when its client has all of it."""


ALTERNATIVES = 8
"""So many tokens that might have been chosen count as one: a client that is told of them must not be far behind."""


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
        if update.logprobs:
            self._tokens += sum(one.alternatives for one in update.logprobs) // ALTERNATIVES
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


Cancel = Callable[["Attempt", int, str], None]


class Attempt:
    """News of the request come in through `deliver` and go out through `next`.

    `observed` counts rounds as their updates tell them: what is known of a target that dies, or whose client leaves,
    before it has told its own statistics.
    """

    def __init__(self, name: str, resumed: int, outbox: Outbox, cancel: Cancel) -> None:
        """`name` identifies it in its session; `resumed` output tokens were committed before."""
        self.name = name
        self.ended = False
        self.observed = Speculation()
        self._next_position = resumed
        self._first = True
        self._epoch = 0
        self._scored = 1
        self._outbox = outbox
        self._cancel = cancel

    def next(self) -> Coroutine[None, None, Update]:
        """News since the last call as one update; waits for the first."""
        return self._outbox.take()

    def cancel(self, tokens_kept: int, reason: str) -> None:
        """Tells the target to stop; the end that it answers still comes through `next`."""
        self._cancel(self, tokens_kept, reason)

    def deliver(self, epoch: int, update: Update) -> bool:
        """Takes an update from the session and drops one of an earlier owner of the slot.

        True when the update ends the request.
        """
        if epoch < self._epoch:
            return False
        self._epoch = epoch
        if update.scores:  # a preempted prompt's come again
            update = update.scored_behind(self._scored)
            self._scored += len(update.scores)
        if update.token_ids:
            if not self._first:  # the prompt's own round is none of speculation
                observed = self.observed
                observed.rounds += 1
                observed.drafted += update.drafted
                observed.accepted += update.accepted
                observed.histogram[update.accepted] += 1
            self._first = False
            if update.position != self._next_position:
                self.cancel(self._next_position, "cancel")
                self.lose(Lost(f"tokens from {update.position} came where {self._next_position} was next"))
                return True
            self._next_position += len(update.token_ids)
        self.ended = update.end is not None
        self._outbox.put(update)
        return self.ended

    def lose(self, lost: Lost) -> None:
        """The target is gone."""
        self.ended = True
        self._outbox.end(lost)
