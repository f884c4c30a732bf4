"""What generators of other languages make of the contract: files have their names, and no field takes one of theirs."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

REPOSITORY = Path(__file__).parents[4]
FILES = [
    file
    for file in FileDescriptorSet.FromString((REPOSITORY / "proto/baseline.binpb").read_bytes()).file
    if file.package.startswith("paceline")
]
OF_JAVA = frozenset(("descriptor", "default_instance"))
"""Methods of every message of Java, of which a field would make a second: that does not compile.

The generator gives other names to fields that are named like other methods, `class` and `all_fields` among them.
"""


def messages(held: FileDescriptorProto | DescriptorProto) -> Iterator[DescriptorProto]:
    """All of them, nested ones too."""
    for message in held.message_type if isinstance(held, FileDescriptorProto) else held.nested_type:
        yield message
        yield from messages(message)


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_every_file_has_a_place_in_go_java_and_csharp(file: FileDescriptorProto) -> None:
    options = file.options
    assert options.go_package == "paceline/v1;pacelinev1"
    assert (options.java_package, options.java_multiple_files) == (file.package, True)
    assert options.csharp_namespace == "Paceline.V1"


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_no_field_takes_the_name_of_a_method_of_every_message(file: FileDescriptorProto) -> None:
    taken = [f"{each.name}.{field.name}" for each in messages(file) for field in each.field if field.name in OF_JAVA]
    assert not taken


def test_each_message_has_a_file_of_its_own_where_capitals_do_not_count() -> None:
    """Java has a file a message, all in one folder."""
    named = (chain(file.message_type, file.enum_type, file.service) for file in FILES)
    names = [str(each.name).lower() for each in chain.from_iterable(named)]  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)
    assert FILES
