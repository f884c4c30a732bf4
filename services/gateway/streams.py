"""Runs one stream for every interface of the gateway: admission, deadlines, slow clients, measurements."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import grpc

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Code, PacelineError, Reason, deadline
from services.common.request.sampling import FinishReason
from services.common.serving import logs
from services.common.serving.tracing import Tracer, from_metadata
from services.gateway import request_id
from services.gateway.admission import Admission, Room, Ticket
from services.gateway.auth import current_tenant
from services.gateway.generation import Delta, Final, Generation
from services.gateway.keys import RunningKeys
from services.gateway.migration import slow_client
from services.gateway.query import Prompt, Query, prompt_cost
from services.gateway.request_factory import RequestFactory
from services.gateway.settings import GatewaySettings

DEADLINE_GRACE_S = 0.2
"""Seconds past the deadline after which the gateway acts: a target knows it too and ends with its statistics."""

LAST_WRITE_S = 1.0

Encode = Callable[[str, Delta | Final], Iterable[object]]
"""Messages of an event, given the id of the request."""


class Context(Protocol):
    """One call as its listener knows it: what came with it, and where its answer goes."""

    def invocation_metadata(self) -> Any:
        """Pairs of names and values that the client sent, names in lower case."""

    def time_remaining(self) -> Any:
        """Seconds up to the client's deadline; None without one."""

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Sends pairs of names and values before the first message."""

    async def write(self, message: Any) -> None:
        """Sends a message; waits while the client does not read."""


class Streams:
    """Serves generations; every interface of the gateway goes through it."""

    def __init__(
        self,
        front: RequestFactory,
        admission: Admission,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        tracer: Tracer,
    ) -> None:
        """`settings.max_request_s` bounds requests whose client set no deadline or a later one."""
        self._front = front
        self._tracer = tracer
        self._admission = admission
        self._settings = settings
        self._metrics = metrics
        self._keys = RunningKeys()

    async def serve(self, ask: Callable[[], Awaitable[Query]], context: Context, encode: Encode) -> None:
        """Runs one call to its end.

        Args:
            ask: takes in the message and makes the query; its refusal counts as the call's.
            context: where messages are written.
            encode: messages of each event.

        Raises:
            PacelineError: the request was refused or failed.
        """
        with self.counted() as began, self.admitted() as ticket:
            query = await ask()
            with self.claimed(query):
                self.queue(ticket, query.prompt)
                await self.run(query, self.stream(context, ticket, began, encode), began)

    @contextmanager
    def counted(self) -> Iterator[float]:
        """Counts the call that the block serves by how it ends; yields when it began, by the monotonic clock."""
        code = Code.INTERNAL
        began = time.monotonic()
        try:
            yield began
            code = Code.OK
        except PacelineError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = Code.CANCELLED
            raise
        finally:
            self._metrics.gateway_requests[code.name].inc()
            self._metrics.request_seconds.observe(time.monotonic() - began)

    @contextmanager
    def admitted(self) -> Iterator[Ticket]:
        """A place inside for the present tenant while the block runs.

        Raises:
            PacelineError: OVERLOADED or TENANT_LIMIT.
        """
        with self._rejects():
            ticket = self._admission.enter(current_tenant())
        self._metrics.gateway_inflight_requests.set(self._admission.requests)
        try:
            yield ticket
        finally:
            ticket.close()
            self._metrics.gateway_inflight_requests.set(self._admission.requests)

    def room(self) -> Room:
        """What the present tenant may have at once, and what is left of it."""
        return self._admission.room(current_tenant())

    def queue(self, ticket: Ticket, prompt: Prompt) -> None:
        """Counts a prompt that is about to be tokenised.

        Raises:
            PacelineError: OVERLOADED or TENANT_LIMIT.
        """
        with self._rejects():
            ticket.queue(prompt_cost(prompt))

    @contextmanager
    def _rejects(self) -> Iterator[None]:
        try:
            yield
        except PacelineError as error:
            self._metrics.gateway_rejects[error.reason.value].inc()
            raise

    def claimed(self, query: Query) -> AbstractContextManager[None]:
        """Holds the query's idempotency key while the block runs.

        Raises:
            PacelineError: DUPLICATE.
        """
        return self._keys.held(current_tenant().name, query.key)

    def stream(self, context: Context, ticket: Ticket, began: float, encode: Encode) -> "Stream":
        """A stream of the present task.

        Raises:
            PacelineError: the id that the client gives its request is none.
        """
        return Stream(context, ticket, self._metrics, began, encode)

    async def run(self, query: Query, stream: "Stream", began: float) -> None:
        """Generates, writes and ends one stream.

        Raises:
            PacelineError: the request was refused or failed.
        """
        until = began + min(query.timeout_s or self._settings.max_request_s, self._settings.max_request_s)
        left_s = stream.context.time_remaining()
        if left_s is not None:
            until = min(until, time.monotonic() + left_s)
        parent = from_metadata(stream.context.invocation_metadata())
        try:
            async with asyncio.timeout(until + DEADLINE_GRACE_S - time.monotonic()):
                with self._tracer.span("paceline.generate", parent, {"request_id": stream.request_id}) as traceparent:
                    # Keys are owned by a name that no client can choose.
                    stream.generation = await self._front.generation(
                        secrets.token_hex(8),
                        query,
                        current_tenant(),
                        stream.ticket,
                        until,
                        traceparent,
                        stream.overflow,
                    )
                    stream.begun(stream.generation)
                    await stream.pump()
        except TimeoutError:
            await stream.expire()
        except asyncio.CancelledError:
            if not stream.overflowed:
                raise
            self._metrics.gateway_slow_clients.inc()
            raise slow_client() from None
        finally:
            stream.close()


class Stream:
    """One client's stream while it runs."""

    def __init__(self, context: Context, ticket: Ticket, metrics: GatewayMetrics, began: float, encode: Encode) -> None:
        """Belongs to the present task."""
        self.request_id = request_id.from_metadata(context.invocation_metadata())
        logs.request_id.set(self.request_id)
        self.generation: Generation | None = None
        self.begun: Callable[[Generation], None] = lambda generation: None
        self.overflowed = False
        self.context = context
        self.ticket = ticket
        self._encode = encode
        self._metrics = metrics
        self._last = began
        self._begun = self._ended = self._told = False
        self._task = asyncio.current_task()

    def overflow(self) -> None:
        """The client fell too far behind: the write that waits for it is ended."""
        self.overflowed = True
        if self._task is not None:
            self._task.cancel()

    async def pump(self) -> None:
        """Writes every event up to the final one."""
        generation = self._running()
        while True:
            event = await generation.next()
            if isinstance(event, Delta):
                await self._write(event)
                self._observe(len(event.token_ids))
                continue
            if event.reason is FinishReason.DEADLINE and not event.completion_tokens:
                raise deadline("the deadline passed before the first token")
            self._ended = True
            await self._write(event)
            return

    async def expire(self) -> None:
        """The deadline passed: ends the stream as far as its client still reads it."""
        if self.generation is None:
            raise deadline("the deadline passed before the request reached a target")
        if self._ended:
            return  # gRPC has the final event already, though the wait for it was cut short
        await self.generation.expire()
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                await self.pump()
        except TimeoutError:
            raise deadline("the deadline passed and the client does not read") from None

    def close(self) -> None:
        """Frees whatever a target still holds for this client."""
        if self.generation is not None:
            self.generation.close("slow_client" if self.overflowed else "cancel")
            self.generation = None  # it knows the stream: together they would keep the call until a collection

    async def _write(self, event: Delta | Final) -> None:
        """Writes an event's messages; waits while the client does not read.

        Raises:
            CancelledError: the client went away; gRPC itself says so only to handlers that are not writing.
        """
        for message in self._encode(self.request_id, event):
            try:
                await self._tell()
                await self.context.write(message)
            except grpc.aio.InternalError as error:
                raise asyncio.CancelledError from error

    async def _tell(self) -> None:
        """Sends the request's id before its first message.

        Sent earlier, it would keep clients from repeating a refused call.
        """
        if not self._told:
            self._told = True
            await self.context.send_initial_metadata(((request_id.HEADER, self.request_id),))

    def _running(self) -> Generation:
        if self.generation is None:
            raise PacelineError(Code.INTERNAL, Reason.INTERNAL, "the stream has no generation")
        return self.generation

    def _observe(self, tokens: int) -> None:
        now = time.monotonic()
        self._metrics.gateway_delivered_tokens.inc(tokens)
        if self._begun:
            self._metrics.inter_token_seconds.observe((now - self._last) / max(tokens, 1))
        else:
            self._begun = True
            self.ticket.started()
            self._metrics.time_to_first_token_seconds.observe(now - self._last)
        self._last = now
