"""One generation for its client: deltas of tokens and final text, then one final event."""

from dataclasses import replace

from services.common.request.sampling import FinishReason
from services.gateway.prompts.text import Piece, TextStream
from services.gateway.routing.routed_request import RoutedRequest
from services.gateway.streams.events import Delta, Final, Shown
from services.gateway.streams.journey import Totals
from services.gateway.streams.migration import MigratingRequest
from services.gateway.targets.messages import Finished, Update


class Generation:
    """Yields events through `next`; `delivered` counts the tokens handed over so far."""

    def __init__(
        self,
        job: RoutedRequest,
        journey: MigratingRequest,
        text: TextStream,
        shows: Shown,
        silent: bool = False,
    ) -> None:
        """Nothing runs before the first `next`; a `silent` one ends where its first token would stand, and has none."""
        self._silent = silent
        self._shows = shows
        self.delivered = 0
        self._job = job
        self._journey = journey
        self._text = text
        self._position = 0
        self._finish: FinishReason | None = None
        self._tail = ""
        self._last_token: int | None = None

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the prompt."""
        return self._job.prompt

    def placed(self) -> bool:
        """A target has the request, or had it."""
        return self._journey.placed

    @property
    def pair_id(self) -> str:
        """The pair that serves it, or did last; empty before any."""
        return self._journey.pair_id

    @property
    def totals(self) -> Totals:
        """Sums over the targets that it has left."""
        return self._journey.totals

    async def next(self) -> Delta | Final:
        """The next event; the call also says that the event before was delivered.

        Raises:
            PacelineError: the request failed.
        """
        self.delivered = self._position
        while self._finish is None:
            delta = self._advanced(await self._journey.next())
            if delta.token_ids or delta.text or delta.prompt_logprobs:
                return delta
        if self._tail:
            tail, self._tail = self._tail, ""
            return Delta(self._position, (), tail)
        if self._finish is FinishReason.STOP_STRING:
            await self._journey.stop(self.delivered, "stop_string")
        return self._final(self._finish)

    async def expire(self) -> None:
        """Notes that the deadline has passed: `next` then yields the rest of the text and the final event."""
        self.delivered = self._position
        await self._journey.stop(self.delivered, "deadline")
        self._tail = self._text.finish().text
        self._finish = FinishReason.DEADLINE

    def close(self, reason: str, answered: bool) -> None:
        """Tells the target what was delivered: the rest counts as discarded, and what still runs is cancelled."""
        self._journey.abandon(self.delivered, reason, answered)

    def _advanced(self, update: Update) -> Delta:
        end = update.end
        hidden = int(isinstance(end, Finished) and end.reason is FinishReason.STOP_TOKEN and bool(update.token_ids))
        if self._silent and (update.token_ids or isinstance(end, Finished)):
            self._finish = FinishReason.LENGTH
            return Delta(0, (), "", prompt_logprobs=update.scores)
        piece = self._text.push(update.token_ids, hidden)
        if isinstance(end, Finished) and not piece.stopped:
            piece = self._with_rest(piece)
        if piece.stopped:
            self._finish = FinishReason.STOP_STRING
        elif isinstance(end, Finished):
            self._finish = end.reason
        position, self._position = self._position, self._position + piece.kept
        token_ids = update.token_ids[: piece.kept]
        thought = self._shows.thought
        if thought is not None and not thought.ended:
            thought.push(token_ids)
        self._last_token = token_ids[-1] if token_ids else self._last_token
        return Delta(
            position,
            token_ids,
            piece.text,
            update.logprobs[: piece.kept],
            update.drafted,
            update.accepted,
            update.rounds,
            update.scores,
            last=self._finish not in (None, FinishReason.STOP_STRING),
        )

    def _with_rest(self, piece: Piece) -> Piece:
        """The last piece, with what the end of the output makes final."""
        rest = self._text.finish()
        return replace(piece, text=piece.text + rest.text, stopped=rest.stopped)

    def _final(self, reason: FinishReason) -> Final:
        totals = self._journey.totals
        if totals.usage.cached_tokens and not self._shows.cached:
            totals = replace(totals, usage=replace(totals.usage, cached_tokens=0))
        return Final(
            reason=reason,
            matched=self._text.matched,
            last_token=self._last_token,
            prompt_tokens=len(self._job.prompt),
            completion_tokens=self._position,
            totals=totals,
            revision=self._journey.revision,
            seed=self._job.sampling.seed,
            prompt_ids=self._job.prompt if self._shows.prompt else (),
            reasoning_tokens=self._shows.thought.tokens if self._shows.thought else 0,
        )
