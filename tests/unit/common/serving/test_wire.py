"""Fields are counted before objects are made: every message of every service, filled with its smallest elements."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.limits import LIMITS
from services.common.serving.malformed import Malformed, tolerant
from services.common.serving.wire import MOST_FIELDS, TooManyFieldsError, check_fields, shape_of
from tests.support.cases import each
from tests.support.hostile_messages import Place, number, places, requests, sized, strange

FIELDS = 100
ALL = requests()
PLACES = [place for message in ALL for place in places(message)]
NUMBERS = (FieldDescriptor.CPPTYPE_MESSAGE, FieldDescriptor.CPPTYPE_STRING)


def varint_list(place: Place) -> bool:
    field = place.path[-1]
    floats = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
    return field.is_repeated and field.cpp_type not in (*NUMBERS, *floats)


def test_the_services_have_many_places(report_counts: Callable[[str, int], None]) -> None:
    assert len(ALL) >= 12
    assert len(PLACES) >= 100
    report_counts("fields_filled", len(PLACES))


@each("message", ALL)
def test_no_field_can_be_filled_with_more_elements_than_are_allowed(message: Descriptor) -> None:
    for place in places(message):
        few, many = place.filled(FIELDS // 2), place.filled(FIELDS + 1)
        check_fields(few, shape_of(message), FIELDS)
        if varint_list(place):
            check_fields(many, shape_of(message), FIELDS)
        else:
            with pytest.raises(TooManyFieldsError, match="fields in one message"):
                check_fields(many, shape_of(message), FIELDS)


def test_a_deserializer_refuses_in_the_clients_words() -> None:
    parse = tolerant(inference_pb2.GenerateRequest.FromString)
    chats = places(inference_pb2.GenerateRequest.DESCRIPTOR)
    place = next(each for each in chats if each.name == "prompt.chat.messages")
    assert parse(place.filled_to(4 << 20)) == Malformed(
        f"prompt.chat.messages: more than {MOST_FIELDS} fields in one message"
    )
    assert len(parse(place.filled(3)).prompt.chat.messages) == 3


@each("message", ALL)
def test_fields_that_no_message_has_are_counted_too(message: Descriptor) -> None:
    for data in strange(4000):
        assert GetMessageClass(message).FromString(data).ByteSize() == len(data)
        with pytest.raises(TooManyFieldsError):
            check_fields(data, shape_of(message), FIELDS)


def test_groups_that_do_not_end_or_did_not_begin_are_no_message() -> None:
    shape = shape_of(inference_pb2.Chat.DESCRIPTOR)
    for data in (number(9 << 3 | 3), number(9 << 3 | 4), sized(1, number(9 << 3 | 3)), b"\x0e", b"\x08", b"\x0a\x05"):
        with pytest.raises(DecodeError):
            check_fields(data, shape)


def test_the_largest_legal_requests_pass() -> None:
    request = inference_pb2.GenerateRequest()
    for _ in range(LIMITS.chat_messages):
        message = request.prompt.chat.messages.add(role="assistant", content="x", reasoning_content="y")
        for _ in range(4):
            message.tool_calls.add(id="a", name="b", arguments="{}")
    for _ in range(LIMITS.chat_tools):
        request.prompt.chat.tools.add(name="a", description="b", parameters="{}")
    request.sampling.logit_bias.update(dict.fromkeys(range(LIMITS.logit_bias), 1.0))
    request.stopping.stop.extend(["a"] * LIMITS.stop_strings)
    check_fields(request.SerializeToString(), shape_of(request.DESCRIPTOR))
    ids = inference_pb2.GenerateRequest()
    ids.prompt.tokens.ids.extend(range(LIMITS.prompt_ids))
    check_fields(ids.SerializeToString(), shape_of(ids.DESCRIPTOR))
    unpacked = b"".join(number(1 << 3) + number(each) for each in range(0, LIMITS.prompt_ids, 7))
    check_fields(sized(2, sized(2, unpacked)), shape_of(ids.DESCRIPTOR))


def test_whatever_protobuf_takes_is_taken(seed: int, report_counts: Callable[[str, int], None]) -> None:
    """Else a client would be refused for a message that is one."""
    rng = random.Random(seed)
    taken = 0
    for _ in range(20_000):
        message = rng.choice(ALL)
        data = scrambled(rng, message)
        try:
            GetMessageClass(message).FromString(data)
        except DecodeError:
            continue
        check_fields(data, shape_of(message))
        taken += 1
    assert taken > 2_000
    report_counts("messages_scanned", taken)


def scrambled(rng: random.Random, message: Descriptor) -> bytes:
    """Pieces that mean something to protobuf, in any order, some of them damaged."""
    mine = [place for place in PLACES if place.message is message] or PLACES
    pieces = [rng.choice(mine).filled(rng.randint(1, 12)) for _ in range(rng.randint(0, 3))]
    pieces += [rng.choice([*strange(12)]) for _ in range(rng.randint(0, 2))]
    pieces += [rng.randbytes(rng.randint(0, 4))] if rng.random() < 0.4 else []
    rng.shuffle(pieces)
    return b"".join(pieces)
