"""Messages that are none of a method: marked when they are read, and refused by whoever would handle them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from services.common.request.errors import malformed
from services.common.serving.wire import TooManyFieldsError, check_fields, shape_of


@dataclass(frozen=True)
class Malformed:
    """Marks a message that is not taken, and why; the handler's wrapper refuses it."""

    why: str = "is not a valid message of this method"


def tolerant(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that returns Malformed where gRPC would answer INTERNAL, and for messages of too many fields."""
    descriptor = getattr(getattr(parse, "__self__", None), "DESCRIPTOR", None)
    shape = shape_of(descriptor) if descriptor is not None else None

    def deserialize(data: bytes) -> Any:
        try:
            if shape is not None:
                check_fields(data, shape)
            return parse(data)
        except TooManyFieldsError as error:
            return Malformed(str(error))
        except (DecodeError, ValueError):
            return Malformed()

    return deserialize


def checked(request: Any) -> Any:
    """The request, or an iterator over requests that refuses a malformed one when it comes."""
    if isinstance(request, Malformed):
        raise malformed(f"the request: {request.why}")
    return _checked_each(request) if hasattr(request, "__aiter__") else request


async def _checked_each(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if isinstance(request, Malformed):
            raise malformed(f"a frame of the stream: {request.why}")
        yield request
