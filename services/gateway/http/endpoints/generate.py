"""Serves one generation: takes the body, runs its choices, sends the answer."""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

from services.common.request.errors import invalid_field
from services.gateway.http.answers.answer import Answer
from services.gateway.http.answers.joined import Joined
from services.gateway.http.answers.keep_alive import KeepAlive
from services.gateway.http.reading.body import Bodies
from services.gateway.http.reading.convert import Headers
from services.gateway.http.reading.rate_limits import rate_limits
from services.gateway.http.schema.bodies import Common
from services.gateway.http.schema.options import IgnoredLog
from services.gateway.http.server.exchange import Exchange
from services.gateway.intake.query import Query
from services.gateway.streams.choices import Choices
from services.gateway.tenancy.admission import Room
from services.gateway.tenancy.auth import current_tenant

MOST_TIMEOUT_S = 1e9
_SECONDS = re.compile(r"(?=\.?[0-9])[0-9]*(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")

Body = TypeVar("Body", bound=Common)


class Generate(Generic[Body]):
    """One endpoint; bodies are read and judged in threads."""

    def __init__(
        self,
        read: Callable[[bytearray], Body],
        convert: Callable[[Body, Headers], Query],
        make: Callable[[Body, Exchange], Answer],
        choices: Choices,
        bodies: Bodies,
        room: Callable[[], Room],
    ) -> None:
        """Takes what reads its bodies and what becomes of one; `room` tells what the present tenant has left."""
        self._room = room
        self._read = read
        self._convert = convert
        self._make = make
        self._choices = choices
        self._bodies = bodies
        self._ignored = IgnoredLog()

    async def __call__(self, exchange: Exchange) -> None:
        """Serves one request.

        Raises:
            PacelineError: it was refused or failed.
        """
        bodies: list[Body] = []
        answers: list[tuple[Answer, Joined]] = []
        keeper = KeepAlive(exchange)

        async def ask() -> Query:
            headers = stated(exchange)

            def read(raw: bytearray) -> tuple[Body, Query]:
                body = self._read(raw)
                return body, self._convert(body, headers)

            body, query = await self._bodies.read(exchange, read)
            self._ignored.tell(current_tenant().name, exchange.headers.get("user-agent", ""), body)
            bodies.append(body)
            return query

        def make(query: Query) -> Joined:
            answer = self._make(bodies.pop(), exchange)
            joined = Joined(answer, query.choices == 1 and not query.others)
            answers.append((answer, joined))
            if answer.streams:
                keeper.start(lambda: answer.placed())  # noqa: PLW0108 - it is set later
            return joined

        exchange.extra += rate_limits(self._room())
        try:
            async with keeper:
                await self._choices.serve(ask, exchange, make)
            answer, joined = answers[0]
            if answer.streams:
                await exchange.end(joined.held + answer.ending())
            else:
                await exchange.reply(answer.whole())
        finally:
            if answers and answers[0][0].scored:
                answers[0][0].release()


def stated(exchange: Exchange) -> Headers:
    """What the headers ask.

    Raises:
        PacelineError: INVALID_FIELD, a header is none of its kind.
    """
    key = exchange.headers.get("idempotency-key", "")
    text = exchange.headers.get("x-request-timeout")
    if text is None:
        return Headers(key)
    # Python's own reading would take 1_0, nan and blanks.
    timeout_s = float(text) if _SECONDS.fullmatch(text) else 0.0
    if not (0.0 < timeout_s <= MOST_TIMEOUT_S):
        raise invalid_field("timeout", f"{text[:32]!r} is not a number of seconds above 0")
    return Headers(key, timeout_s)
