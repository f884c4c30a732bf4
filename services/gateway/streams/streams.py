"""Runs one stream for every interface of the gateway: admission, deadlines, slow clients, measurements."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

import grpc

from services.common.metrics.catalogue import GatewayMetrics, ModelMetrics
from services.common.request.errors import Code, PacelineError, Reason, deadline
from services.common.request.sampling import FinishReason
from services.gateway.intake.query import Query, prompt_cost
from services.gateway.settings import GatewaySettings
from services.gateway.streams import request_id
from services.gateway.streams.calls import Call, Calls, current_call
from services.gateway.streams.entrance import Entrance
from services.gateway.streams.events import Delta, Final
from services.gateway.streams.generation import Generation
from services.gateway.streams.migration import slow_client
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.targets.account import Permit
from services.gateway.tenancy.admission import Ticket
from services.gateway.tenancy.auth import current_tenant

DEADLINE_GRACE_S = 0.2
"""Seconds past the deadline after which the gateway acts: a target knows it too and ends with its statistics."""

LAST_WRITE_S = 1.0
_AGAIN_S = 0.02

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
        entrance: Entrance,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        calls: Calls,
    ) -> None:
        """`settings.max_request_s` bounds requests whose client set no deadline or a later one."""
        self.entrance = entrance
        self._front = front
        self._settings = settings
        self._metrics = metrics
        self.calls = calls

    async def serve(self, ask: Callable[[], Awaitable[Query]], context: Context, encode: Encode) -> None:
        """Runs one call to its end.

        Args:
            ask: takes in the message and makes the query; its refusal counts as the call's.
            context: where messages are written.
            encode: messages of each event.

        Raises:
            PacelineError: the request was refused or failed.
        """
        call = self.begin()
        with self.entrance.admitted() as ticket:
            query = await ask()
            with self.entrance.claimed(query):
                ticket.queue(prompt_cost(query.prompt))
                await self.run(query, self.stream(context, ticket, call, encode))

    @staticmethod
    def begin() -> Call:
        """The present call, which is one for text from here on."""
        call = current_call()
        call.generates = True
        return call

    async def permits(self, query: Query, call: Call, context: Context, prompts: Sequence[int]) -> list[Permit]:
        """Lets several answers of the present tenant in, all or none; none where it has no bounds over all gateways.

        Raises:
            PacelineError: TENANT_LIMIT, or DEADLINE when the call's passes before those that count have answered.
        """
        try:
            async with self._in_time(self._until(query, call, context)):
                return await self.entrance.permits(prompts, query.stopping.max_tokens)
        except TimeoutError:
            raise deadline("the deadline passed before the request reached a target") from None

    async def _permit(self, stream: "Stream", prompt: int, most: int) -> None:
        """Lets a stream in that came alone; its prompt is used now, once for all answers to it."""
        if stream.permit is None:
            for permit in await self.entrance.permits((prompt,), most):
                stream.permit = permit
        if stream.permit is not None:
            stream.permit.begin(prompt if stream.counted else 0)

    def stream(self, context: Context, ticket: Ticket, call: Call, encode: Encode) -> "Stream":
        """A stream of the present task.

        Raises:
            PacelineError: the id that the client gives its request is none.
        """
        return Stream(context, ticket, self._metrics, call, encode)

    async def run(self, query: Query, stream: "Stream") -> None:
        """Generates, writes and ends one stream.

        Raises:
            PacelineError: the request was refused or failed.
        """
        until = self._until(query, stream.call, stream.context)
        try:
            async with self._in_time(until):
                # Keys are owned by a name that no client can choose.
                stream.generation = await self._front.generation(
                    secrets.token_hex(8),
                    query,
                    current_tenant(),
                    stream.ticket,
                    until,
                    stream.call.span.traceparent,
                    stream.overflow,
                )
                await self._permit(stream, len(stream.generation.prompt), query.stopping.max_tokens)
                stream.begun(stream.generation)
                await stream.pump()
        except TimeoutError:
            await stream.expire()
        except asyncio.CancelledError:
            if not stream.overflowed:
                raise
            metrics = self._metrics.of(stream.call.model)
            metrics.gateway_slow_clients.inc()
            raise slow_client() from None
        finally:
            stream.close()

    def _until(self, query: Query, call: Call, context: Context) -> float:
        """The deadline of a call on the monotonic clock: the client's, and no later than the settings allow."""
        longest_s = self._settings.max_request_s
        until = call.began + min(query.timeout_s or longest_s, longest_s)
        left_s = context.time_remaining()
        return until if left_s is None else min(until, time.monotonic() + left_s)

    @staticmethod
    def _in_time(until: float) -> asyncio.Timeout:
        """Ends what waits in it when a deadline has passed for the gateway, too."""
        return asyncio.timeout(until + DEADLINE_GRACE_S - time.monotonic())


class Stream:
    """One client's stream while it runs."""

    def __init__(self, context: Context, ticket: Ticket, metrics: GatewayMetrics, call: Call, encode: Encode) -> None:
        """Belongs to the present task and tells the record of its call what becomes of it."""
        self.request_id = request_id.from_metadata(context.invocation_metadata(), call.request_id)
        self.call = call
        self.generation: Generation | None = None
        self.permit: Permit | None = None
        self.begun: Callable[[Generation], None] = lambda generation: None
        self.counted = True
        self.overflowed = False
        self.context = context
        self.ticket = ticket
        self._encode = encode
        self._metrics = metrics
        self._counts: ModelMetrics | None = None
        self._last = call.began
        self._begun = self._ended = self._told = self._cut = False
        self._unsent: deque[object] = deque()
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
            self.call.finish_reasons.append(event.reason.value)
            return

    async def expire(self) -> None:
        """The deadline passed: ends the stream as far as its client still reads it."""
        if self.generation is None:
            raise deadline("the deadline passed before the request reached a target")
        self._cut = True
        if not self._ended:
            await self.generation.expire()
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                await (self._send() if self._ended else self.pump())
        except TimeoutError:
            raise deadline("the deadline passed and the client does not read") from None

    def close(self) -> None:
        """Frees whatever a target still holds for this client."""
        if self.permit is not None:
            self.permit.close()
        generation = self.generation
        if generation is not None:
            generation.close("slow_client" if self.overflowed else "cancel", self._ended)
            self.call.ran(generation.pair_id, generation.totals, len(generation.prompt) if self.counted else 0)
            self.generation = None  # it knows the stream: together they would keep the call until a collection

    async def _write(self, event: Delta | Final) -> None:
        """Writes an event's messages; waits while the client does not read.

        Raises:
            CancelledError: the client went away.
        """
        self._unsent.extend(self._encode(self.request_id, event))
        await self._send()

    async def _send(self) -> None:
        """Writes what is unsent.

        gRPC takes one message at a time. It keeps one whose write the deadline cut short, and until its client has read
        that it refuses the next one, as it does where the client went away.

        Raises:
            CancelledError: the client went away; gRPC itself says so only to handlers that are not writing.
        """
        unsent = self._unsent
        while unsent:
            if not self._told:
                await self._tell()
            message = unsent.popleft()
            try:
                await self.context.write(message)
            except grpc.aio.InternalError as error:
                if not self._cut:
                    raise asyncio.CancelledError from error
                unsent.appendleft(message)
                await asyncio.sleep(_AGAIN_S)

    async def _tell(self) -> None:
        """Sends the request's id before its first message.

        Sent earlier, it would keep clients from repeating a refused call.
        """
        self._told = True
        try:
            # gRPC would take what is cut short for unsent, and write nothing behind it.
            await asyncio.shield(self.context.send_initial_metadata(((request_id.HEADER, self.request_id),)))
        except grpc.aio.InternalError as error:
            raise asyncio.CancelledError from error

    def _running(self) -> Generation:
        if self.generation is None:
            raise PacelineError(Code.INTERNAL, Reason.INTERNAL, "the stream has no generation")
        return self.generation

    def _observe(self, tokens: int) -> None:
        """A delta was sent; its tokens came as one, so each has an equal part of the time since the last one."""
        if not tokens:
            return
        call, now = self.call, time.monotonic()
        if self._counts is None:
            self._counts = self._metrics.of(call.model)
        metrics = self._counts
        metrics.gateway_delivered_tokens.inc(tokens)
        call.completion_tokens += tokens
        if self.permit is not None:
            self.permit.spend(tokens)
        if self._begun:
            metrics.inter_token_seconds.observe_each((now - self._last) / tokens, tokens)
        else:
            self._begun = True
            self.ticket.started()
            metrics.time_to_first_token_seconds[call.label].observe(now - self._last)
            metrics.inter_token_seconds.observe_each(0.0, tokens - 1)
            call.first_token_s = call.first_token_s or now - call.began
        self._last = now
