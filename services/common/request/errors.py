"""Typed errors of paceline; knows neither gRPC nor protobuf."""

from enum import IntEnum, StrEnum


class Code(IntEnum):
    """gRPC status codes by number."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reason(StrEnum):
    """Names of ErrorReason in the wire contract, without its prefix."""

    INVALID_FIELD = "INVALID_FIELD"
    MALFORMED = "MALFORMED"
    CONTEXT_LIMIT = "CONTEXT_LIMIT"
    UNKNOWN_MODEL = "UNKNOWN_MODEL"
    UNSUPPORTED = "UNSUPPORTED"
    OVERLOADED = "OVERLOADED"
    TENANT_LIMIT = "TENANT_LIMIT"
    NO_TARGET = "NO_TARGET"
    TARGET_LOST = "TARGET_LOST"
    DRAINING = "DRAINING"
    DEADLINE = "DEADLINE"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PROTOCOL = "PROTOCOL"
    DUPLICATE = "DUPLICATE"
    SLOW_CLIENT = "SLOW_CLIENT"
    ATTACH_REFUSED = "ATTACH_REFUSED"
    INTERNAL = "INTERNAL"


class PacelineError(Exception):
    """One refusal or failure: a status code, a reason, words for people, and the field at fault if one is.

    retry_after_s tells when the same call may succeed; None when retrying does not help.
    """

    def __init__(
        self,
        code: Code,
        reason: Reason,
        message: str,
        field: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


def invalid_field(field: str, message: str) -> PacelineError:
    """A field of the request is out of range or of the wrong form."""
    return PacelineError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, f"{field}: {message}", field)


def malformed(message: str) -> PacelineError:
    """The message is no valid protobuf."""
    return PacelineError(Code.INVALID_ARGUMENT, Reason.MALFORMED, message)


def unsupported(field: str, message: str) -> PacelineError:
    """The option is known but not built."""
    return PacelineError(Code.INVALID_ARGUMENT, Reason.UNSUPPORTED, f"{field}: {message}", field)


def context_limit(field: str, message: str) -> PacelineError:
    """The request can never fit."""
    return PacelineError(Code.INVALID_ARGUMENT, Reason.CONTEXT_LIMIT, f"{field}: {message}", field)


def overloaded(message: str, retry_after_s: float) -> PacelineError:
    """Too much is waiting; the same call may succeed later."""
    return PacelineError(Code.RESOURCE_EXHAUSTED, Reason.OVERLOADED, message, retry_after_s=retry_after_s)


def unavailable(reason: Reason, message: str) -> PacelineError:
    """Nobody can serve the call now; a second later somebody may."""
    return PacelineError(Code.UNAVAILABLE, reason, message, retry_after_s=1.0)


def deadline(message: str) -> PacelineError:
    """The deadline passed."""
    return PacelineError(Code.DEADLINE_EXCEEDED, Reason.DEADLINE, message)


def protocol(expected: int, got: int) -> PacelineError:
    """The peer speaks another version of the contract."""
    return PacelineError(
        Code.FAILED_PRECONDITION,
        Reason.PROTOCOL,
        f"expected protocol version {expected}, got {got}",
        "protocol_version",
    )


def let_go(error: BaseException | None) -> None:
    """Forgets where an error and those before it came from: their frames hold requests, and one another."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
