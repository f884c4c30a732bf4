"""One request on one target."""

from collections.abc import Callable, Coroutine

from services.gateway.targets.messages import Lost, Speculation, Update
from services.gateway.targets.outbox import Outbox

Cancel = Callable[["Attempt", int, str], None]


class Attempt:
    """News of the request come in through `deliver` and go out through `next`.

    `observed` counts rounds as the gateway saw them: what is known when a target dies without its own statistics, so
    drafts that were rejected are missing from it.
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
            if not self._first:
                accepted, observed = len(update.token_ids) - 1, self.observed
                observed.rounds += 1
                observed.drafted += accepted
                observed.accepted += accepted
                observed.histogram[accepted] += 1
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
