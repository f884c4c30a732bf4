"""The record of each call over gRPC, before anybody has looked at its key."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from services.common.request.errors import Code, PacelineError, Reason
from services.common.serving.tracing import from_metadata
from services.gateway.streams import request_id
from services.gateway.streams.calls import Call, Calls
from services.gateway.tenancy.auth import current_tenant

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
        start = (details.method, "", name, from_metadata(metadata))
        behaviour: Any = handler.stream_stream or handler.stream_unary
        if handler.response_streaming:
            make, serve = grpc.stream_stream_rpc_method_handler, self._streaming(behaviour, start)
        else:
            make, serve = grpc.stream_unary_rpc_method_handler, self._single(behaviour, start)
        return make(serve, handler.request_deserializer, handler.response_serializer)

    def _single(self, behaviour: Any, start: tuple[str, str, str, str]) -> Any:
        async def serve(request: Any, context: Any) -> Any:
            with self._calls.of(*start) as call:
                self._calls.belongs(call, current_tenant().name)
                call.time_s = context.time_remaining()
                with _coded(call, context):
                    return await behaviour(request, context)

        return serve

    def _streaming(self, behaviour: Any, start: tuple[str, str, str, str]) -> Any:
        async def serve(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._calls.of(*start) as call:
                self._calls.belongs(call, current_tenant().name)
                call.time_s = context.time_remaining()
                with _coded(call, context):
                    responses = behaviour(request, context)
                    if inspect.isawaitable(responses):
                        await responses
                        return
                    async for response in responses:
                        yield response

        return serve


@contextmanager
def _coded(call: Call, context: Any) -> Iterator[None]:
    """Tells the record the code that a service set by itself, whether it aborted the call or went on."""
    try:
        yield
    finally:
        code = context.code()
        if code:
            call.aborted(code.value[0] if isinstance(code, grpc.StatusCode) else code)
