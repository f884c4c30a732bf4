"""Several answers to one prompt: the first computes the prompt's K/V, the others find it in the prefix cache."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from services.gateway.admission import Ticket
from services.gateway.calls import Call
from services.gateway.generation import Delta, Final, Generation
from services.gateway.query import DRAWN_SEED_BITS, Query, TokenPrompt
from services.gateway.streams import Context, Encode, Streams


class Answer(Protocol):
    """Makes the messages of one call out of its choices' events; `placed` tells that a target has the request."""

    placed: Callable[[], bool]

    def begin(self, prompt: tuple[int, ...]) -> None:
        """Tells the token ids of the prompt, once, before any event."""

    def messages(self, choice: int, event: Delta | Final) -> Iterable[object]:
        """The messages of an event of one choice."""


def seed_of(seed: int, choice: int) -> int:
    """The seed of a choice: the first has the request's, so that it equals the only answer."""
    if not choice:
        return seed
    named = seed.to_bytes(8, "little") + choice.to_bytes(4, "little")
    return int.from_bytes(hashlib.sha256(named).digest()[:8], "little") >> (64 - DRAWN_SEED_BITS)


class Choices:
    """Serves calls that may want several answers; each counts as a request."""

    def __init__(self, streams: Streams) -> None:
        """Takes the life of one stream."""
        self._streams = streams

    async def serve(
        self, ask: Callable[[], Awaitable[Query]], context: Context, make: Callable[[Query], Answer]
    ) -> None:
        """Runs one call to its end; cancelling it cancels all of its choices.

        Args:
            ask: takes in the body and makes the query; its refusal counts as the call's.
            context: where messages are written.
            make: makes the answer to a query.

        Raises:
            PacelineError: a choice was refused or failed; the others have ended.
        """
        streams = self._streams
        present = streams.begin()
        with streams.admitted() as ticket:
            query = await ask()
            with streams.claimed(query), ExitStack() as places:
                streams.queue(ticket, query.prompt)
                tickets = [ticket, *(places.enter_context(streams.admitted()) for _ in range(1, query.choices))]
                call = _Call(streams, context, make(query), present)
                if len(tickets) == 1:
                    await call.run(0, query, ticket)
                else:
                    await _together(call, query, tickets)


class _Call:
    """One call; `first_token` is done when the first choice has one, with the prompt's token ids."""

    def __init__(self, streams: Streams, context: Context, answer: Answer, call: Call) -> None:
        self.first_token: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._streams = streams
        self._context = context
        self._answer = answer
        self._call = call
        self._prompt: tuple[int, ...] = ()

    async def run(self, choice: int, query: Query, ticket: Ticket) -> None:
        """One choice in the present task."""
        stream = self._streams.stream(self._context, ticket, self._call, self._encode(choice))
        if not choice:
            stream.begun = self._begin
        await self._streams.run(query, stream)

    def _begin(self, generation: Generation) -> None:
        self._prompt = generation.prompt
        self._answer.placed = generation.placed
        self._answer.begin(generation.prompt)

    def _encode(self, choice: int) -> Encode:
        def encode(_: str, event: Delta | Final) -> Iterable[object]:
            if not (choice or self.first_token.done()):
                self.first_token.set_result(self._prompt)
            return self._answer.messages(choice, event)

        return encode


async def _together(call: _Call, query: Query, tickets: list[Ticket]) -> None:
    """The first choice, and the others when it has its first token; a failure ends all."""
    seed = query.sampling.seed if query.seed_given else secrets.randbits(DRAWN_SEED_BITS)

    def seeded(choice: int, **changes: TokenPrompt | str) -> Query:
        sampling = replace(query.sampling, seed=seed_of(seed, choice))
        return replace(query, sampling=sampling, seed_given=True, **changes)  # type: ignore[arg-type]

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(call.run(0, seeded(0), tickets[0]))
            prompt = TokenPrompt(await call.first_token)
            for choice, ticket in enumerate(tickets[1:], start=1):
                group.create_task(call.run(choice, seeded(choice, prompt=prompt, key=""), ticket))
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
