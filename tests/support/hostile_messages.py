"""Messages that are small on the wire and large once parsed, made from the descriptors of every service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from services.common.pb.paceline.v1 import drafter_pb2, fleet_pb2, inference_pb2, target_pb2
from services.gateway.vllm import MissingPackageError, vllm_service

VARINT, BYTES, GROUP, GROUP_END = 0, 2, 3, 4
DEEPEST = 6
"""Messages inside one another that paths are made of; a message that holds itself has endless ones."""


@dataclass(frozen=True)
class Place:
    """Where a field is: the fields of the messages around it, outermost first, and itself last."""

    message: Descriptor
    path: tuple[FieldDescriptor, ...]

    @property
    def name(self) -> str:
        """As an error names it."""
        return ".".join(field.name for field in self.path)

    def around(self, inside: bytes) -> bytes:
        """These bytes in the message that holds the field, and that in those around it."""
        for field in reversed(self.path[:-1]):
            inside = sized(field.number, inside)
        return inside

    def filled(self, elements: int) -> bytes:
        """A message with so many of the smallest element of the field."""
        return self.around(smallest(self.path[-1]) * elements)

    def filled_to(self, size: int) -> bytes:
        """The same, of at most `size` bytes but for some around them."""
        return self.filled(size // len(smallest(self.path[-1])))


def services() -> Iterator[ServiceDescriptor]:
    """Every service that a listener of paceline has."""
    for module in (inference_pb2, target_pb2, drafter_pb2, fleet_pb2, health_pb2, reflection_pb2):
        yield from module.DESCRIPTOR.services_by_name.values()
    try:
        yield vllm_service()
    except MissingPackageError:
        return


def requests() -> list[Descriptor]:
    """Every type of message that a client may send to one of them."""
    found = {method.input_type.full_name: method.input_type for each in services() for method in each.methods}
    return [found[name] for name in sorted(found)]


def places(message: Descriptor) -> Iterator[Place]:
    """Every field of a message and of the messages in it."""
    outer: list[tuple[FieldDescriptor, ...]] = [()]
    for path in outer:
        inside = path[-1].message_type if path else message
        for field in inside.fields if inside is not None else ():
            yield Place(message, (*path, field))
            if field.message_type is not None and len(path) < DEEPEST:
                outer.append((*path, field))


def smallest(field: FieldDescriptor) -> bytes:
    """A field whose element is empty or zero."""
    if field.message_type is not None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return sized(field.number, b"")
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64):
        return number(field.number << 3 | 1) + bytes(8)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32):
        return number(field.number << 3 | 5) + bytes(4)
    return number(field.number << 3 | VARINT) + b"\x00"


def strange(size: int) -> Iterator[bytes]:
    """Fields that no message has, in forms that protobuf takes: many, of many numbers, in groups, in deep groups."""
    yield (number(999 << 3 | VARINT) + b"\x00") * (size // 3)
    yield b"".join(number(each << 3 | VARINT) + b"\x00" for each in range(1000, 1000 + size // 3))
    yield (number(999 << 3 | GROUP) + number(999 << 3 | GROUP_END)) * (size // 4)
    yield (number(999 << 3 | GROUP) * 50 + number(999 << 3 | GROUP_END) * 50) * (1 + size // 400)
    yield number(999 << 3 | GROUP) + (number(1 << 3 | BYTES) + b"\x00") * (size // 2) + number(999 << 3 | GROUP_END)


def sized(field: int, data: bytes) -> bytes:
    """A field of bytes."""
    return number(field << 3 | BYTES) + number(len(data)) + data


def number(value: int) -> bytes:
    """A varint."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes((value,))
