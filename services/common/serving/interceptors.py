"""Maps every error to a status, once, for all services."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from services.common.request.error_convert import to_grpc_status
from services.common.request.errors import Code, PacelineError, Reason, let_go
from services.common.serving.malformed import checked, tolerant

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any] | None
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """PacelineError becomes its status; anything else INTERNAL with an id that the log repeats, and no trace."""

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler:
        """Wraps the handler of one call, keeping its arity."""
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler
        parse = tolerant(handler.request_deserializer)
        encode = handler.response_serializer
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary), parse, encode)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream), parse, encode)
        if handler.stream_unary:
            return grpc.stream_unary_rpc_method_handler(_unary(handler.stream_unary), parse, encode)
        return grpc.stream_stream_rpc_method_handler(_stream(handler.stream_stream), parse, encode)


def _unary(behaviour: Callable[..., Any] | None) -> Callable[..., Any]:
    assert behaviour is not None, "the handler has another arity"

    async def wrapped(request: Any, context: Any) -> Any:
        try:
            return await behaviour(checked(request), context)
        except BaseException as error:
            return await _abort(error, context)

    return wrapped


def _stream(behaviour: Callable[..., Any] | None) -> Callable[..., Any]:
    assert behaviour is not None, "the handler has another arity"

    async def wrapped(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            responses = behaviour(checked(request), context)
            if inspect.isawaitable(responses):
                await responses
                return
            async for response in responses:
                yield response
        except BaseException as error:
            await _abort(error, context)

    return wrapped


async def _abort(error: BaseException, context: Any) -> None:
    """Ends the call with the status of the error.

    Raises:
        BaseException: the error itself, when gRPC or the caller ended the call already.
    """
    if isinstance(error, grpc.aio.AbortError | asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
        raise error
    if isinstance(error, PacelineError):
        let_go(error)
        await context.abort_with_status(to_grpc_status(error))
    identity = secrets.token_hex(4)
    logger.error("unexpected error %s", identity, exc_info=error)
    internal = PacelineError(Code.INTERNAL, Reason.INTERNAL, f"internal error {identity}")
    await context.abort_with_status(to_grpc_status(internal))
