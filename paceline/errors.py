"""The exceptions of this package; their fields tell a program what to do."""

from typing import Any

import grpc
from google.protobuf import any_pb2, descriptor_pb2, duration_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

DETAILS = "grpc-status-details-bin"
_Field = descriptor_pb2.FieldDescriptorProto


class PacelineError(RuntimeError):
    """Something that this package tells."""


class NoGatewayError(PacelineError):
    """No gateway answers at an address."""


class InvalidValueError(PacelineError, ValueError):
    """A value that no gateway would take; the message begins with its name, and nothing was sent."""


class RefusedError(PacelineError):
    """The gateway refused a call or could not finish it.

    Decide by `reason` (docs/use.md lists them); `code` is gRPC's, `field` the one at fault, `retry_after_s` the time
    after which the same call may succeed, None where repeating does not help.
    """

    def __init__(
        self, code: str, message: str, reason: str = "", field: str = "", retry_after_s: float | None = None
    ) -> None:
        """Takes what the gateway said."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.field = field
        self.retry_after_s = retry_after_s


def refused(error: grpc.RpcError) -> RefusedError:
    """What a failed call says; details that cannot be read are left out."""
    call: Any = error
    code, message = call.code().name, call.details() or ""
    packed = next((value for key, value in call.trailing_metadata() or () if key == DETAILS), b"")
    try:
        return RefusedError(code, message, **_details(packed))
    except DecodeError:
        return RefusedError(code, message)


def _details(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for packed in _Status.FromString(data).details:
        kind = packed.type_url.rpartition(".")[2]
        if kind == "ErrorInfo":
            found["reason"] = _ErrorInfo.FromString(packed.value).reason
        elif kind == "RetryInfo":
            found["retry_after_s"] = _RetryInfo.FromString(packed.value).retry_delay.ToNanoseconds() / 1e9
        elif kind == "BadRequest":
            violations = _BadRequest.FromString(packed.value).field_violations
            found["field"] = violations[0].field if violations else ""
    return found


def _messages() -> dict[str, Any]:
    """The few messages of google.rpc that are read here, in a pool where nobody else's definitions can clash."""
    file = descriptor_pb2.FileDescriptorProto(name="details.proto", package="paceline.details", syntax="proto3")
    file.dependency.extend(["google/protobuf/any.proto", "google/protobuf/duration.proto"])
    many = _Field.LABEL_REPEATED
    _message(file, "Status", details=(3, many, ".google.protobuf.Any"))
    _message(file, "ErrorInfo", reason=(1, _Field.LABEL_OPTIONAL, ""))
    _message(file, "RetryInfo", retry_delay=(1, _Field.LABEL_OPTIONAL, ".google.protobuf.Duration"))
    _message(file, "Violation", field=(1, _Field.LABEL_OPTIONAL, ""))
    _message(file, "BadRequest", field_violations=(1, many, ".paceline.details.Violation"))
    pool = DescriptorPool()
    for module in (any_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        one.name: GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{one.name}")) for one in file.message_type
    }


def _message(file: descriptor_pb2.FileDescriptorProto, name: str, **fields: tuple[int, Any, str]) -> None:
    """Adds a message; a field is its number, label and type of message, which is empty for text."""
    message = file.message_type.add(name=name)
    for field, (number, label, of) in fields.items():
        kind = _Field.TYPE_MESSAGE if of else _Field.TYPE_STRING
        message.field.add(name=field, number=number, label=label, type=kind, type_name=of or None)


_classes: dict[str, type[Message]] = _messages()
_Status: Any = _classes["Status"]
_ErrorInfo: Any = _classes["ErrorInfo"]
_RetryInfo: Any = _classes["RetryInfo"]
_BadRequest: Any = _classes["BadRequest"]
