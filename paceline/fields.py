"""Whether a value fits its field of the contract, so that an error names the option before anything is sent."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from paceline.errors import InvalidValueError
from paceline.v1 import inference_pb2, types_pb2

T = TypeVar("T")

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
)
STOPPING = ("max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos")
LISTS = ("stop", "stop_token_ids", "bad_words", "allowed_token_ids")
TEXTS = ("stop", "bad_words")
"""Lists of which one text may stand alone."""
GIVEN = ("logprobs", "prompt_logprobs", "bad_words", "allowed_token_ids", "thinking_budget")
REQUEST = ("model", "priority", "idempotency_key", "migration", *GIVEN)
"""Fields of a request itself; those `GIVEN` are sent where they have a value."""

FIELDS: Mapping[str, tuple[Any, str]] = {
    **{name: (types_pb2.Sampling, name) for name in SAMPLING},
    **{name: (types_pb2.Stopping, name) for name in STOPPING},
    **{name: (inference_pb2.GenerateRequest, name) for name in REQUEST},
    "max_draft": (types_pb2.Speculation, "max_draft"),
    "speculation": (types_pb2.Speculation, "off"),
}
"""Message and field of an option; its range beyond the field's type is the gateway's to judge."""

WANTED = {
    FieldDescriptor.TYPE_UINT32: "a whole number from 0 to 4294967295",
    FieldDescriptor.TYPE_UINT64: "a whole number from 0 to 18446744073709551615",
    FieldDescriptor.TYPE_INT32: "a whole number from -2147483648 to 2147483647",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_BOOL: "True or False",
    FieldDescriptor.TYPE_STRING: "text in Unicode",
    FieldDescriptor.TYPE_MESSAGE: "a mapping of token ids to numbers",
}


def check(name: str, value: object) -> None:
    """Raises unless a value fits the option's field.

    Raises:
        TypeError, InvalidValueError: it does not; the message begins with the option's name.
    """
    message, field = FIELDS[name]
    descriptor = message.DESCRIPTOR.fields_by_name[field]
    wanted = WANTED[descriptor.type]
    wanted = f"a list, each {wanted}" if name in LISTS else wanted
    fitting(name, value, wanted, lambda: message(**{field: value}))


def fitting(name: str, value: object, wanted: str, make: Callable[[], T]) -> T:
    """What `make` makes of a value.

    Raises:
        TypeError, InvalidValueError: it cannot; the message begins with the name, and says what is wanted.
    """
    told = f"{name}: {_short(value)} is not {wanted}"
    try:
        return make()
    except TypeError:
        raise TypeError(told) from None
    except (ValueError, OverflowError):
        raise InvalidValueError(told) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
