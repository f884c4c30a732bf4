"""Receives the body of a request, bounded in size and time and in a place of its tenant, and parses it in a thread."""

import json
import re
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from services.common.request.errors import Code, PacelineError, Reason, malformed
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES
from services.gateway.http.bodies import Body
from services.gateway.http.errors import no_json, too_large, too_slow
from services.gateway.http.exchange import Exchange
from services.gateway.inlet import Gate

Model = TypeVar("Model", bound=Body)
NAME = re.compile(r"[A-Za-z_]\w*")
MOST_CHARACTERS = 200
UNION_TAGS = frozenset({"str", "int", "float", "bool"})


async def take_body(exchange: Exchange, gate: Gate) -> bytes:
    """The whole body.

    Raises:
        PacelineError: it is too large, too slow, or not said to be JSON; OVERLOADED when memory is short.
    """
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise no_json()
    if int(exchange.headers.get("content-length", "0")) > MAX_CLIENT_MESSAGE_BYTES:
        raise too_large(MAX_CLIENT_MESSAGE_BYTES)
    try:
        async with gate.place():
            return await _whole(exchange)
    except PacelineError as error:
        raise (too_slow() if error.reason is Reason.DEADLINE else error) from None


async def _whole(exchange: Exchange) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in exchange.pieces():
        size += len(piece)
        if size > MAX_CLIENT_MESSAGE_BYTES:
            raise too_large(MAX_CLIENT_MESSAGE_BYTES)
        pieces.append(piece)
    return b"".join(pieces)


def parsed(kind: type[Model], body: bytes) -> Model:
    """The body as values; bounded work, but not for the event loop.

    Raises:
        PacelineError: MALFORMED when it is no JSON, INVALID_FIELD or UNSUPPORTED with the name at fault.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = _clearest(error.errors(include_url=False, include_context=False, include_input=False))
    if first["type"] in ("json_invalid", "model_type"):
        raise malformed(f"the body is not a JSON object: {first['msg'][:MOST_CHARACTERS]}")
    name = _name(first["loc"])
    if first["type"] == "extra_forbidden":
        raise PacelineError(
            Code.INVALID_ARGUMENT, Reason.UNSUPPORTED, f"{name}: is not an option of this API", field=name
        )
    text = f"{name}: {first['msg'][:MOST_CHARACTERS]}"
    raise PacelineError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, text, field=name)


def _clearest(faults: list[ErrorDetails]) -> ErrorDetails:
    """The first fault; of several readings of one field the one that came furthest."""
    first = faults[0]
    return max((one for one in faults if one["loc"][:1] == first["loc"][:1]), key=lambda one: len(one["loc"]))


def _name(location: tuple[int | str, ...]) -> str:
    """Where the fault is, as clients write it; the branches of unions are left out."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part in UNION_TAGS or "[" in part or part.endswith("Part"):
            continue
        elif NAME.fullmatch(part) and len(part) <= MOST_CHARACTERS:
            name += f".{part}" if name else part
        else:
            name += f"[{json.dumps(part[:64])}]"
    return name or "body"
