"""Takes in the messages of clients: every method is served by a handler of stream arity and reads for itself.

So a call is refused and counted as soon as its headers have come. gRPC receives a whole message once a handler asks for
it, so each tenant has a bounded number of messages under way. Large ones are parsed off the event loop, one of a tenant
at a time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc

from services.common.request.errors import Code, PacelineError, Reason, malformed, overloaded
from services.common.serving.malformed import Malformed, tolerant
from services.gateway.intake.fair_threads import FairThreads
from services.gateway.intake.growth_guard import GrowthGuard
from services.gateway.tenancy.auth import current_tenant

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]

PLACES = 32
"""Messages of one tenant that may be under way at once."""

PATIENCE_S = 30.0
"""Longest time that a message may take, its wait for a place included."""

LARGE_PLACES = 2
"""Those of them that may be large over HTTP, where a message begins as text; they are kept until they are parsed."""

ALL_LARGE_PLACES = 8
"""Those of all tenants: 32 MiB."""

HURRY_S = 1.0
"""Time that remains to messages under way when others of their tenant wait for a place."""

LARGE_BYTES = 64 << 10
"""Messages of this size and more are parsed off the event loop; smaller ones take less than a millisecond."""

TAKEN_AWAY_S = 0.05
"""Time in which gRPC ends a call whose message it did not hand on."""

THREADS = 2
"""Tenants whose large messages are parsed at the same time."""

Message = TypeVar("Message")


class Gate:
    """The places of one tenant."""

    def __init__(self, guard: GrowthGuard, places: int) -> None:
        """All places are free."""
        self._guard = guard
        self._free = asyncio.Semaphore(places)
        self._readers: set[asyncio.Timeout] = set()
        self._waiting = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Callable[[], None]]:
        """A place for one message; when there is none, earlier messages get a shorter time limit.

        Gives what to call when the message is whole and yet keeps its place: its time is then unlimited.

        Raises:
            PacelineError: DEADLINE when the time of the message is over, OVERLOADED when memory is.
        """
        limit = asyncio.timeout(PATIENCE_S)
        try:
            async with limit:
                await self._enter(limit)
                self._guard.begin(limit)
                try:
                    yield lambda: self._whole(limit)
                finally:
                    self._guard.end(limit)
                    self._readers.discard(limit)
                    self._free.release()
        except TimeoutError:
            if self._guard.ended(limit):
                raise overloaded("messages under way take too much memory", HURRY_S) from None
            text = "the message of the call did not come in time"
            raise PacelineError(Code.DEADLINE_EXCEEDED, Reason.DEADLINE, text) from None
        finally:
            self._guard.forget(limit)

    def _whole(self, limit: asyncio.Timeout) -> None:
        self._readers.discard(limit)
        limit.reschedule(None)

    async def _enter(self, limit: asyncio.Timeout) -> None:
        if self._free.locked():
            for reader in self._readers:
                _hurry(reader)
            self._waiting += 1
            try:
                await self._free.acquire()
            finally:
                self._waiting -= 1
        else:
            await self._free.acquire()
        self._readers.add(limit)
        if self._waiting:
            _hurry(limit)


class Gates:
    """The places of every tenant, whatever listener its messages come through."""

    def __init__(self) -> None:
        """Nothing is under way."""
        guard = GrowthGuard()
        self._gates: defaultdict[str, Gate] = defaultdict(lambda: Gate(guard, PLACES))
        self._large: defaultdict[str, Gate] = defaultdict(lambda: Gate(guard, LARGE_PLACES))
        self._all_large = Gate(guard, ALL_LARGE_PLACES)

    def present(self) -> Gate:
        """Those of the present tenant."""
        return self._gates[current_tenant().name]

    @asynccontextmanager
    async def large(self) -> AsyncIterator[Callable[[], None]]:
        """A place that a large message of the present tenant needs besides; as `Gate.place`."""
        async with self._large[current_tenant().name].place() as own, self._all_large.place() as shared:

            def whole() -> None:
                own()
                shared()

            yield whole


class Messages(Generic[Message]):
    """The messages of one call, each taken in when it is asked for."""

    def __init__(self, gate: Gate, context: Any, parse: Callable[[bytes], Any], threads: FairThreads) -> None:
        """Reads nothing yet."""
        self._gate = gate
        self._context = context
        self._parse = parse
        self._threads = threads

    def __aiter__(self) -> Messages[Message]:
        return self

    async def __anext__(self) -> Message:
        """The next message.

        Raises:
            PacelineError: MALFORMED, DEADLINE or OVERLOADED.
            StopAsyncIteration: the client has sent all.
        """
        async with self._gate.place():
            message = await self._parsed(await self._context.read())
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        if isinstance(message, Malformed):
            raise malformed(f"the request: {message.why}")
        taken: Message = message
        return taken

    async def _parsed(self, data: Any) -> Any:
        if data is grpc.aio.EOF:
            return data
        if len(data) < LARGE_BYTES:
            return self._parse(data)
        return await self._threads.run(current_tenant().name, self._parse, data)

    async def only(self) -> Message:
        """The one message of a call that has one.

        Raises:
            PacelineError: as `__anext__`, MALFORMED when there is none, INVALID_FIELD when gRPC does not take it.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            await self._not_taken()
            raise malformed("the call has no message") from None

    async def _not_taken(self) -> None:
        """gRPC ends a call itself whose message is too large: it hands no message on, and then takes the call away."""
        try:
            await asyncio.sleep(TAKEN_AWAY_S)
        except asyncio.CancelledError:
            text = "the message of the call is too large"
            raise PacelineError(Code.RESOURCE_EXHAUSTED, Reason.INVALID_FIELD, text) from None


class InletInterceptor(grpc.aio.ServerInterceptor):
    """Hands every method its messages by Messages; one that takes a single message gets it when it is whole."""

    def __init__(self, gates: Gates) -> None:
        """Takes the places that messages need."""
        self._gates = gates
        self._threads = FairThreads(THREADS, "message")

    def close(self) -> None:
        """Ends the threads that parse."""
        self._threads.close()

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Replaces the handler by one of stream arity with the same answers."""
        handler = await continuation(details)
        if handler is None:
            return None
        behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        parse = tolerant(handler.request_deserializer or bytes)

        def messages(context: Any) -> Messages[Any]:
            return Messages(self._gates.present(), context, parse, self._threads)

        if handler.request_streaming:
            serve: Any = lambda _, context: behaviour(messages(context), context)  # noqa: E731 - it takes no part
        else:
            serve = (self._streaming if handler.response_streaming else self._single)(behaviour, messages)
        return make(serve, _as_it_came, handler.response_serializer)

    def _single(self, behaviour: Callable[..., Any], messages: Callable[[Any], Messages[Any]]) -> Callable[..., Any]:
        async def serve(_: Any, context: Any) -> Any:
            return await behaviour(await messages(context).only(), context)

        return serve

    def _streaming(self, behaviour: Callable[..., Any], messages: Callable[[Any], Messages[Any]]) -> Callable[..., Any]:
        async def serve(_: Any, context: Any) -> AsyncIterator[Any]:
            responses = behaviour(await messages(context).only(), context)
            if inspect.isawaitable(responses):
                await responses
                return
            async for response in responses:
                yield response

        return serve


def _as_it_came(data: bytes) -> bytes:
    return data


def _hurry(reader: asyncio.Timeout) -> None:
    soon, when = asyncio.get_running_loop().time() + HURRY_S, reader.when()
    if when is None or soon < when:
        reader.reschedule(soon)
