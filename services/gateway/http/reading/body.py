"""Receives the body of a request, bounded in size and time and in a place of its tenant, and parses it in a thread."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from services.common.request.errors import Code, PacelineError, Reason, malformed
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES
from services.gateway.http.schema.base import Body
from services.gateway.http.schema.errors import NamedError, no_json, too_large, too_slow
from services.gateway.http.schema.options import REFUSED, is_absent
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.server.inflate import Inflater, Plain, reader
from services.gateway.intake.fair_threads import FairThreads
from services.gateway.intake.growth_guard import give_back
from services.gateway.intake.inlet import Gates
from services.gateway.intake.shape import Shape
from services.gateway.tenancy.auth import current_tenant

Model = TypeVar("Model", bound=Body)
Result = TypeVar("Result")

INLINE_BYTES = 2048
"""Bodies up to this size are read at once, most in a fraction of a millisecond: to ask a thread would take as long."""

LARGE_BYTES = 1 << 16
SMALL_THREADS = 4
"""Tenants whose small bodies are read at the same time."""

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
BOM = b"\xef\xbb\xbf"
HALF = re.compile("[\ud800-\udfff]")
NAME = re.compile(r"[A-Za-z_]\w*")
MOST_CHARACTERS = 200
TAGS = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "message", "reasoning", "function_call"}
    | {"function_call_output", "input_text", "output_text", "refusal", "function tool", "hosted tool"}
    | {"custom_tool_call", "custom_tool_call_output", "custom", "namespace", "document", "search_result"}
    | {"compaction", "tool_reference"}
)
"""Types of entries of lists, between the number of an entry and a field of it."""

MOST_TAG = 64
UNION_TAGS = frozenset({"str", "int", "float", "bool"})
NO_PYTHON = {
    "none_required": "Input should be null",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "list_type": "Input should be a valid array",
}
"""Faults whose own words are Python's, in those of JSON."""


class Bodies:
    """Takes in bodies and has all but the shortest read in threads, in which tenants take turns.

    Large ones have a turn of their own, one at a time: reading holds Python's lock. Small ones wait for none of them.
    """

    def __init__(self, gates: Gates) -> None:
        """Takes the places that bodies need while they come, and large ones until they are read."""
        self._gates = gates
        self._small = FairThreads(SMALL_THREADS, "body")
        self._large = FairThreads(1, "large-body")

    async def read(self, exchange: Exchange, work: Callable[[bytearray], Result]) -> Result:
        """What the work makes of the whole body, which it must not keep.

        Raises:
            PacelineError: the body is too large, too slow, broken or not said to be JSON; OVERLOADED, memory is short.
        """
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise no_json()
        inflate = reader(exchange.headers.get("content-encoding", ""))
        if type(inflate) is Plain and (whole := exchange.came()) is not None and len(whole) <= INLINE_BYTES:
            return work(bytearray(whole))  # it needs no place, for nobody waits for it
        if int(exchange.headers.get("content-length", "0")) > MAX_CLIENT_MESSAGE_BYTES:
            raise too_large(MAX_CLIENT_MESSAGE_BYTES)
        try:
            async with AsyncExitStack() as held:
                body = bytearray()
                await self._take(exchange, body, held, inflate)
                if len(body) <= INLINE_BYTES:
                    return work(body)
                if len(body) <= LARGE_BYTES:
                    return await self._small.run(current_tenant().name, work, body)
                return await self._large.run(current_tenant().name, _trimmed, work, body)
        except PacelineError as error:
            raise (too_slow() if error.reason is Reason.DEADLINE else error) from None

    async def _take(self, exchange: Exchange, body: bytearray, held: AsyncExitStack, inflate: Plain | Inflater) -> None:
        """Adds to the body until it is whole; `held` keeps the place of a large one."""
        whole: Callable[[], None] | None = None
        async with self._gates.present().place():
            async for piece in exchange.pieces():
                inflate.push(piece, body, MAX_CLIENT_MESSAGE_BYTES)
                if len(body) > MAX_CLIENT_MESSAGE_BYTES:
                    raise too_large(MAX_CLIENT_MESSAGE_BYTES)
                if len(body) > LARGE_BYTES and whole is None:
                    whole = await held.enter_async_context(self._gates.large())
        inflate.finish()
        if whole is not None:
            whole()

    def close(self) -> None:
        """Ends the threads."""
        self._small.close()
        self._large.close()


def _trimmed(work: Callable[[bytearray], Result], body: bytearray) -> Result:
    """What the work makes; what it took meanwhile is given back before the next large body comes on top of it."""
    try:
        return work(body)
    except PacelineError as error:
        # Frames and causes of a refusal hold what was parsed, for as long as somebody holds the refusal.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        raise
    finally:
        body.clear()
        give_back()


def parsed(kind: type[Model], body: bytes | bytearray) -> Model:
    """The body as values; bounded work, but not for the event loop. The body is empty afterwards, where it can be.

    It becomes objects once, and the model and its faults hold the same ones: a text may take four times its bytes.

    Raises:
        PacelineError: MALFORMED when it is no JSON, INVALID_FIELD or UNSUPPORTED with the name at fault.
    """
    if body.startswith(BOM):
        body = body[len(BOM) :]  # as some write before UTF-8; a reader may ignore it
    Shape().take(body)
    try:
        value = from_json(body, cache_strings="all" if len(body) <= LARGE_BYTES else "none")
    except ValueError as error:
        why = str(error)
    else:
        if isinstance(body, bytearray):
            body.clear()
        return validated(kind, value)
    if name := _half_character(body):
        text = f"{name}: holds half a character, a \\u escape from d800 to dfff without its other half"
        raise NamedError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, text, field=name)
    raise malformed(f"the body is not a JSON object: Invalid JSON: {why[:MOST_CHARACTERS]}")


def validated(kind: type[Model], value: Any) -> Model:
    """A value of JSON as a body, also one that was written in the words of another API; `parsed` tells what is raised.

    Options that are not known and say nothing are taken out of the value, and 16.0 becomes 16 where it has to be whole.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
    if _as_meant(value, faults):
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
    raise _refused(faults)


def _as_meant(value: Any, faults: Sequence[ErrorDetails]) -> bool:
    """Whether any fault is none, which the value says otherwise then.

    Options that are not known and say nothing are taken out of it; a whole number that was written as 16.0 is 16.
    """
    changed = False
    for fault in faults:
        *steps, last = fault["loc"] or ("",)
        place = _place(value, steps)
        told = place.get(last)
        if fault["type"] == "extra_forbidden" and last in place and is_absent(str(last), told):
            del place[last]
            changed = True
        elif fault["type"] == "int_type" and isinstance(told, float) and told.is_integer():
            place[last], changed = int(told), True
    return changed


def _half_character(body: bytes | bytearray) -> str:
    """The name of a text with half a character, as clients have that cut texts by UTF-16; empty where that is no fault.

    Pydantic takes such a body for no JSON at all, and says where in bytes.
    """
    if not SURROGATE.search(body):
        return ""
    try:
        left: list[tuple[tuple[int | str, ...], Any]] = [((), json.loads(body))]
    except (ValueError, RecursionError):
        return ""
    while left:
        path, value = left.pop()
        if isinstance(value, str) and HALF.search(value):
            return _name(path)
        if isinstance(value, dict):
            if any(HALF.search(key) for key in value):
                return _name(path)
            left += (((*path, key), inner) for key, inner in reversed(value.items()))
        elif isinstance(value, list):
            left += (((*path, at), inner) for at, inner in reversed([*enumerate(value)]))
    return ""


def _place(value: Any, steps: Sequence[int | str]) -> dict[Any, Any]:
    """The object to which steps lead; names of branches of unions among them lead nowhere."""
    for step in steps:
        known = step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
        value = value[step] if known else value
    return value if isinstance(value, dict) else {}


def _refused(faults: list[ErrorDetails]) -> PacelineError:
    """The refusal of a body, by its clearest fault."""
    first = _clearest([fault for fault in faults if fault["type"] != "extra_forbidden"] or faults)
    if first["type"] == "model_type" and not first["loc"]:
        return malformed(f"the body is not a JSON object: {_words(first)}")
    name = _name(first["loc"])
    if first["type"] == "extra_forbidden":
        instead = f"; {REFUSED[name]}" if name in REFUSED else ""
        text = f"{name}: is not an option of this API{instead}"
        return NamedError(Code.INVALID_ARGUMENT, Reason.UNSUPPORTED, text, field=name)
    name += ".type" if first["type"] in ("union_tag_invalid", "union_tag_not_found") else ""
    text = f"{name}: {_words(first)}"
    return NamedError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, text, field=name)


def _words(fault: ErrorDetails) -> str:
    """What is wrong; too many entries are told as the validator of all listeners tells it."""
    if fault["type"] == "union_tag_invalid" and fault["ctx"]["tag"].startswith(("{", "[")):
        return "Input should be a valid string"  # such a tag is told in words of Python
    if fault["type"] == "union_tag_invalid":
        return f"{fault['ctx']['tag'][:MOST_TAG]!r} is none of {_offered(fault['ctx']['expected_tags'])}"[
            :MOST_CHARACTERS
        ]
    if fault["type"] == "union_tag_not_found":
        return "is needed"
    if fault["type"] != "too_long":
        return NO_PYTHON.get(fault["type"], fault["msg"])[:MOST_CHARACTERS]
    most, found = fault["ctx"]["max_length"], fault["ctx"].get("actual_length")
    return f"{found or f'more than {most}'} entries, at most {most} are allowed"


def _offered(tags: str) -> str:
    """The types that a client may send, of tags that are told; one of them stands for all that is left out."""
    return ", ".join(tag.replace(" tool'", "'") for tag in tags.split(", ") if tag != "'hosted tool'")


def _clearest(faults: list[ErrorDetails]) -> ErrorDetails:
    """The first fault; of several readings of one field the one that came furthest."""
    first = faults[0]
    readings = (one for one in faults if one["loc"][:1] == first["loc"][:1])
    return max(readings, key=lambda one: (len(one["loc"]), one["type"] == "too_long"))


@cache
def _names_of_bodies() -> frozenset[str]:
    """Names of classes, which stand for branches of unions."""

    def below(kind: type[Body]) -> Iterator[str]:
        yield kind.__name__
        for one in kind.__subclasses__():
            yield from below(one)

    return frozenset(below(Body))


def _name(location: tuple[int | str, ...]) -> str:
    """Where the fault is, as clients write it; the branches of unions are left out."""
    name = ""
    for before, part, behind in zip((None, *location), location, (*location[1:], None), strict=False):
        tagged = isinstance(before, int) and part in TAGS and isinstance(behind, str)
        if tagged or (isinstance(before, str) and before.startswith("tagged-union[")):
            continue  # which form a value has, by its type
        if isinstance(part, int):
            name += f"[{part}]"
        elif part in UNION_TAGS or "[" in part or part in _names_of_bodies():
            continue
        elif NAME.fullmatch(part) and len(part) <= MOST_CHARACTERS:
            name += f".{part}" if name else part
        else:
            name += f"[{json.dumps(part[:64])}]"
    return name or "body"
