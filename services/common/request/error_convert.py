"""Errors on the wire: google.rpc details for RPCs, RequestError for requests inside a session."""

from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from services.common.pb.paceline.v1 import target_pb2, types_pb2
from services.common.request.errors import Code, PacelineError, Reason

DOMAIN = "paceline"
_PREFIX = "ERROR_REASON_"
_CODES = {int(code): code for code in Code}
_REASONS: dict[int, Reason] = {types_pb2.ErrorReason.Value(_PREFIX + reason.value): reason for reason in Reason}


def to_status(error: PacelineError) -> status_pb2.Status:
    """The error as google.rpc.Status with ErrorInfo, and BadRequest and RetryInfo where they apply."""
    details: list[message.Message] = [error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN)]
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration(error.retry_after_s)))
    return status_pb2.Status(
        code=code_pb2.Code.ValueType(int(error.code)), message=error.message, details=[_packed(d) for d in details]
    )


def to_grpc_status(error: PacelineError) -> rpc_status._Status:
    """The status that context.abort_with_status takes."""
    return rpc_status.to_status(to_status(error))


def from_status(status: status_pb2.Status) -> PacelineError:
    """The error that a peer's status stands for; a status without our ErrorInfo is INTERNAL by reason."""
    reason, field, retry = Reason.INTERNAL, "", None
    for detail in status.details:
        info, bad, wait = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.reason in Reason.__members__:
            reason = Reason[info.reason]
        elif detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
        elif detail.Unpack(wait):
            retry = wait.retry_delay.ToTimedelta().total_seconds()
    return PacelineError(_CODES.get(status.code, Code.UNKNOWN), reason, status.message, field, retry)


def to_pb(error: PacelineError) -> target_pb2.RequestError:
    """The error as the refusal of one request of a session."""
    converted = target_pb2.RequestError(
        code=int(error.code),
        reason=types_pb2.ErrorReason.Value(_PREFIX + error.reason.value),
        message=error.message,
        field=error.field,
    )
    if error.retry_after_s is not None:
        converted.retry_after.CopyFrom(duration(error.retry_after_s))
    return converted


def from_pb(converted: target_pb2.RequestError) -> PacelineError:
    """The refusal of one request as an error; codes and reasons newer than this build are INTERNAL."""
    reason = _REASONS.get(converted.reason, Reason.INTERNAL)
    code = _CODES.get(converted.code, Code.INTERNAL)
    retry = converted.retry_after.ToTimedelta().total_seconds() if converted.HasField("retry_after") else None
    return PacelineError(code, reason, converted.message, converted.field, retry)


def duration(seconds: float) -> duration_pb2.Duration:
    """Seconds as a Duration."""
    whole = int(seconds)
    return duration_pb2.Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def _packed(detail: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
