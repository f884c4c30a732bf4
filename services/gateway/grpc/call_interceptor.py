"""The record of each call over gRPC, before anybody has looked at its key."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from services.common.request.errors import Code, PacelineError, Reason
from services.common.serving.tracing import from_metadata
from services.gateway.streams import request_id
from services.gateway.streams.calls import Calls
from services.gateway.tenancy.auth import current_tenant

Recorded = Callable[[Any], AbstractContextManager[None]]
"""Given the context of a call, what it runs in."""

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Stands before every other interceptor of the gateway."""

    def __init__(self, calls: Calls) -> None:
        """Takes what makes the records."""
        self._calls = calls

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Wraps the handler, which is of stream arity or refuses; a method that is not served ends here."""
        metadata = [*(details.invocation_metadata or ())]
        handler = await continuation(details)
        name = request_id.offered(metadata)
        if handler is None:
            lacking = PacelineError(Code.UNIMPLEMENTED, Reason.UNSUPPORTED, "no such method")
            self._calls.refuse("", name, 0, lacking, current_tenant().name)
            return None
        recorded = partial(_recorded, self._calls, (details.method, "", name, from_metadata(metadata)))
        behaviour: Any = handler.stream_stream or handler.stream_unary
        if handler.response_streaming:
            make, serve = grpc.stream_stream_rpc_method_handler, _streaming(behaviour, recorded)
        else:
            make, serve = grpc.stream_unary_rpc_method_handler, _single(behaviour, recorded)
        return make(serve, handler.request_deserializer, handler.response_serializer)


def _single(behaviour: Any, recorded: Recorded) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        with recorded(context):
            return await behaviour(request, context)

    return serve


def _streaming(behaviour: Any, recorded: Recorded) -> Any:
    async def serve(request: Any, context: Any) -> AsyncIterator[Any]:
        with recorded(context):
            responses = behaviour(request, context)
            if inspect.isawaitable(responses):
                await responses
                return
            async for response in responses:
                yield response

    return serve


@contextmanager
def _recorded(calls: Calls, start: tuple[str, str, str, str], context: Any) -> Iterator[None]:
    """The record of a call while it runs; told the code that a service set by itself, by an abort or not."""
    with calls.of(*start) as call:
        calls.belongs(call, current_tenant().name)
        call.time_s = context.time_remaining()
        try:
            yield
        finally:
            code = context.code()
            if code:
                call.aborted(code.value[0] if isinstance(code, grpc.StatusCode) else code)
