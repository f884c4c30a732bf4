"""Turns commits into updates for sessions, and settles the tokens of requests that end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from services.common.request.errors import PacelineError
from services.common.request.sampling import FinishReason
from services.target.core.messages import End, Totals, Update
from services.target.core.plan import Commit, Progress, PromptScores
from services.target.core.request import Request
from services.target.engine.ledger import TokenLedger

SETTLE_S = 2.0
"""Seconds after a request's end for the word of a gateway that need not say how many tokens it kept."""
LATEST_S = 60.0
"""Seconds after a request's deadline, when no stream of it is left, for the word of one that always says it."""


class Emitter:
    """The live requests by session, the updates of the present round, and the token ledger."""

    def __init__(self, ledger: TokenLedger) -> None:
        """Starts without requests."""
        self.ledger = ledger
        self._live: dict[tuple[int, str], Request] = {}
        self._ended: dict[tuple[int, str], Request] = {}
        self._awaited: dict[tuple[int, str], Request] = {}
        self._settling: set[int] = set()
        self._updates: defaultdict[int, list[Update]] = defaultdict(list)

    def __len__(self) -> int:
        """Live requests."""
        return len(self._live)

    def open(self, session: int) -> None:
        """A session whose gateway says of each request how many tokens it kept: no clock speaks for it."""
        self._settling.add(session)

    def add(self, session: int, request: Request) -> None:
        """Follows a request until it ends."""
        self._live[session, request.spec.request_id] = request

    def find(self, session: int, request_id: str) -> Request | None:
        """The live request of that id in that session."""
        return self._live.get((session, request_id))

    def of_session(self, session: int) -> list[Request]:
        """Live requests of a session."""
        return [request for (owner, _), request in self._live.items() if owner == session]

    def live(self) -> list[Request]:
        """All live requests."""
        return list(self._live.values())

    def refuse(self, session: int, request_id: str, error: PacelineError) -> None:
        """Reports a request that never ran."""
        self._updates[session].append(Update(request_id, end=End(error=error)))

    def turn_away(self, session: int, request_id: str) -> None:
        """Reports a request that a draining target does not take; the gateway continues it on another target."""
        self._updates[session].append(Update(request_id, end=End(moved=True)))

    def commit(self, commit: Commit) -> list[Request]:
        """Reports what a round committed.

        Returns:
            Requests that ended by it.
        """
        committed, ended = commit.discarded, list[Request]()
        if committed:
            self.ledger.settle(committed, 0, "epoch")
        for progress in commit.progress:
            committed += len(progress.tokens)
            if self._advance(progress):
                ended.append(progress.request)
        self.ledger.committed += committed
        return ended

    def scored(self, request: Request | None, scores: PromptScores) -> None:
        """Reports scores of a prompt; those of a request that has left its slot are nobody's."""
        if request is not None:
            name = request.spec.request_id
            self._updates[_key(request)[0]].append(Update(name, request.epoch, request.generated, scores=scores))

    def end(self, request: Request, end: End) -> None:
        """Reports the end of a request where no commit ended it."""
        self._leave(request)
        self._report_end(request, end)

    def cancel(self, request: Request, tokens_kept: int, reason: str) -> None:
        """Reports a cancellation by the gateway, which kept ``tokens_kept`` output tokens in all."""
        self._leave(request)
        self.kept(_key(request)[0], request.spec.request_id, tokens_kept, reason)
        self._report_end(request, End(reason=request.end or FinishReason.CANCELLED, totals=totals(request)))

    def kept(self, session: int, request_id: str, tokens_kept: int, reason: str) -> None:
        """Settles a request that ended lately by the number that the gateway kept, unless it is settled."""
        request = self._waiting(session).pop((session, request_id), None)
        if request is not None:
            self.ledger.settle(committed_here(request), tokens_kept - resumed(request), reason)

    def close(self, session: int, undelivered: Mapping[str, int]) -> list[Request]:
        """Settles all requests of a session that is gone; reports nothing.

        Returns:
            Those that were live.
        """
        closed = self.of_session(session)
        for request in closed:
            self._leave(request)
        waiting = self._waiting(session)
        for key in [key for key in waiting if key[0] == session]:
            request = waiting.pop(key)
            here = committed_here(request)
            self.ledger.settle(here, here - undelivered.get(key[1], 0))
        self._settling.discard(session)
        return closed

    def settle(self, now: float) -> None:
        """Settles requests for which no gateway's word is awaited any more: all their tokens count as emitted."""
        self._expire(self._ended, lambda request: (request.ended or 0.0) + SETTLE_S <= now)
        self._expire(
            self._awaited, lambda request: max(request.ended or 0.0, request.spec.deadline or 0.0) + LATEST_S <= now
        )

    def _expire(self, waiting: dict[tuple[int, str], Request], over: Callable[[Request], bool]) -> None:
        """Settles from the oldest one on, up to the first for which it is not over."""
        while waiting and over(request := next(iter(waiting.values()))):
            del waiting[_key(request)]
            here = committed_here(request)
            self.ledger.settle(here, here)

    def _waiting(self, session: int) -> dict[tuple[int, str], Request]:
        """Requests of a session that have ended and are not settled, with those of others."""
        return self._awaited if session in self._settling else self._ended

    def take(self) -> dict[int, list[Update]]:
        """The updates gathered since the last call, by session."""
        updates, self._updates = self._updates, defaultdict(list)
        return updates

    def _advance(self, progress: Progress) -> bool:
        request = progress.request
        end = None if progress.end is None else End(reason=progress.end, totals=totals(request))
        name, logprobs = request.spec.request_id, progress.logprobs or ()
        update = Update(
            name,
            request.epoch,
            progress.position,
            progress.tokens,
            logprobs,
            end,
            progress.drafted,
            progress.accepted,
        )
        self._updates[_key(request)[0]].append(update)
        if end is None:
            return False
        self._leave(request)
        return True

    def _leave(self, request: Request) -> None:
        key = _key(request)
        del self._live[key]
        self._waiting(key[0])[key] = request

    def _report_end(self, request: Request, end: End) -> None:
        position = len(request.tokens) - request.spec.prompt_length
        self._updates[_key(request)[0]].append(Update(request.spec.request_id, request.epoch, position, end=end))


def resumed(request: Request) -> int:
    """Output tokens that were committed elsewhere before the request came here."""
    return len(request.spec.token_ids) - request.spec.prompt_length


def committed_here(request: Request) -> int:
    """Output tokens committed on this target."""
    return len(request.tokens) - len(request.spec.token_ids)


def totals(request: Request) -> Totals:
    """Usage and speculation of a request on this target."""
    stats = request.stats
    admitted = request.admitted if request.admitted is not None else request.ended
    first = request.first_token if request.first_token is not None else request.ended
    return Totals(
        prompt_tokens=request.spec.prompt_length,
        cached_tokens=request.cached_tokens,
        completion_tokens=committed_here(request),
        queue_s=_between(request.arrived, admitted),
        prefill_s=_between(admitted, first),
        decode_s=_between(first, request.ended),
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        histogram=tuple(stats.histogram),
        by_width=tuple(sorted(stats.by_width.items())),
    )


def _between(start: float | None, end: float | None) -> float:
    return max(end - start, 0.0) if start is not None and end is not None else 0.0


def _key(request: Request) -> tuple[int, str]:
    session = request.session
    if not isinstance(session, int):
        raise TypeError(f"a session is named by a number, not by {session!r}")
    return session, request.spec.request_id
