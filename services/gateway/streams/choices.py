"""Several answers in one call: to several prompts, and to each of them several.

The first answer to a prompt computes its K/V, the others find it in the prefix cache.
"""

import asyncio
import hashlib
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from services.gateway.intake.query import DRAWN_SEED_BITS, Query, TokenPrompt, prompt_cost
from services.gateway.streams.calls import Call
from services.gateway.streams.events import Delta, Final
from services.gateway.streams.generation import Generation
from services.gateway.streams.streams import Context, Encode, Streams
from services.gateway.targets.account import Permit
from services.gateway.tenancy.admission import Ticket


class Answer(Protocol):
    """Makes the messages of one call out of its choices' events; `placed` tells that a target has the request."""

    placed: Callable[[], bool]

    def begin(self, choice: int, prompt: tuple[int, ...]) -> None:
        """Tells the token ids of a choice's prompt, once, before any of its events."""

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
        streams, entrance = self._streams, self._streams.entrance
        present = streams.begin()
        with entrance.admitted() as ticket:
            query = await ask()
            prompts = (query.prompt, *query.others)
            with entrance.claimed(query), ExitStack() as places:
                count = len(prompts) * query.choices
                if count > 1:
                    entrance.check_fits(count)
                tickets = [ticket, *(places.enter_context(entrance.admitted()) for _ in range(1, count))]
                for prompt, first in zip(prompts, tickets[:: query.choices], strict=True):
                    first.queue(prompt_cost(prompt))
                call = _Call(streams, context, make(query), present)
                if len(tickets) == 1:
                    await call.run(0, query, ticket)
                else:
                    costs = [
                        0 if at % query.choices else prompt_cost(prompts[at // query.choices]) for at in range(count)
                    ]
                    call.permits = await streams.permits(query, present, context, costs)
                    for permit in call.permits:
                        places.callback(permit.close)
                    await _together(call, query, tickets)


class _Call:
    """One call; `first_tokens` are done when the first choice of a prompt has one, with the prompt's token ids.

    `permits` are those of its choices, where they were let in together.
    """

    def __init__(self, streams: Streams, context: Context, answer: Answer, call: Call) -> None:
        make = asyncio.get_running_loop().create_future
        self.first_tokens: defaultdict[int, asyncio.Future[tuple[int, ...]]] = defaultdict(make)
        self.permits: list[Permit] = []
        self._streams = streams
        self._context = context
        self._answer = answer
        self._call = call
        self._prompts: dict[int, tuple[int, ...]] = {}

    async def run(self, choice: int, query: Query, ticket: Ticket, counted: bool = True) -> None:
        """One choice in the present task; its prompt is `counted` with one of its choices."""
        stream = self._streams.stream(self._context, ticket, self._call, self._encode(choice))
        stream.begun = lambda generation: self._begin(choice, generation)
        stream.counted = counted
        stream.permit = self.permits[choice] if self.permits else None
        await self._streams.run(query, stream)

    def _begin(self, choice: int, generation: Generation) -> None:
        self._prompts[choice] = generation.prompt
        if not choice:
            self._answer.placed = generation.placed
        self._answer.begin(choice, generation.prompt)

    def _encode(self, choice: int) -> Encode:
        first = self.first_tokens[choice]

        def encode(_: str, event: Delta | Final) -> Iterable[object]:
            if not first.done() and (isinstance(event, Final) or event.token_ids):
                first.set_result(self._prompts[choice])
            return self._answer.messages(choice, event)

        return encode


async def _together(call: _Call, query: Query, tickets: list[Ticket]) -> None:
    """All prompts at once; a failure ends all."""
    seed = query.sampling.seed if query.seed_given else secrets.randbits(DRAWN_SEED_BITS)
    seeded = replace(query, sampling=replace(query.sampling, seed=seed), seed_given=True, others=())
    several = query.choices
    try:
        async with asyncio.TaskGroup() as group:
            for index, prompt in enumerate((query.prompt, *query.others)):
                mine = replace(seeded, prompt=prompt, key="" if index else query.key)
                places = tickets[index * several : (index + 1) * several]
                group.create_task(_answers(call, index * several, mine, places))
    except BaseExceptionGroup as group_error:
        raise _first_of(group_error) from None


async def _answers(call: _Call, base: int, query: Query, tickets: list[Ticket]) -> None:
    """The first choice of a prompt, and the others when it has its first token; scores of the prompt come with one."""
    async with asyncio.TaskGroup() as group:
        group.create_task(call.run(base, query, tickets[0]))
        if len(tickets) == 1:
            return
        prompt = TokenPrompt(await call.first_tokens[base])
        for choice, ticket in enumerate(tickets[1:], start=1):
            sampling = replace(query.sampling, seed=seed_of(query.sampling.seed, choice))
            other = replace(query, sampling=sampling, prompt=prompt, key="", prompt_logprobs=None)
            group.create_task(call.run(base + choice, other, ticket, counted=False))


def _first_of(error: BaseException) -> BaseException:
    """What went wrong first, however deep in groups it lies."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
