"""Why a target takes nothing new, in the words of whoever operates it."""

from collections.abc import Iterable

import grpc
from grpc_status import rpc_status

from services.common.request.error_convert import from_status
from services.common.request.errors import Code, PacelineError, Reason
from services.common.request.limits import PROTOCOL_VERSION

NOT_REACHED = "not reached yet"
DRAINING = "draining"
MOST_CHARACTERS = 200

BY_CODE = {
    Code.UNAUTHENTICATED: "refused key: it does not know the secret of this gateway",
    Code.PERMISSION_DENIED: "refused certificate: it states no name that may call there",
    Code.UNIMPLEMENTED: "no target: something else answers at this address",
}


class SessionLostError(Exception):
    """The stream ended or went silent."""


class VersionError(SessionLostError):
    """The target speaks another version of the contract."""

    def __init__(self, version: int) -> None:
        super().__init__(f"wrong protocol version: it speaks {version}, this gateway {PROTOCOL_VERSION}")


class OtherModelError(SessionLostError):
    """The target serves what this gateway does not."""

    def __init__(self, model: str, wanted: Iterable[str]) -> None:
        super().__init__(f"other model: it serves {model!r}, not {' or '.join(map(repr, wanted))}")


def cause(error: BaseException | None) -> str:
    """An error in a few words."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


def words(error: BaseException) -> str:
    """Why a target is away, by the error that ended the last attempt to reach it, on one line."""
    if isinstance(error, grpc.aio.AioRpcError):
        found = _refused(error)
    elif isinstance(error, TimeoutError):
        found = "cannot connect: no answer in time"
    elif isinstance(error, OSError):
        found = f"cannot connect: {error}"
    else:
        found = cause(error)
    return " ".join(found.split())[:MOST_CHARACTERS]


def kind(why: str) -> str:
    """The part of such words that stays while only details change."""
    return why.partition(":")[0]


def _refused(error: grpc.aio.AioRpcError) -> str:
    told = _told(error)
    if told is None:
        # What is no target's own refusal comes from the connection.
        plain = BY_CODE.get(Code(error.code().value[0]))
        return plain or f"cannot connect: {error.details()}"
    if told.reason is Reason.PROTOCOL:
        return f"wrong protocol version: {told.message}"
    if told.reason is Reason.NO_TARGET:
        return "not ready yet: it loads its model"
    return BY_CODE.get(told.code) or f"refused: {told.message}"


def _told(error: grpc.aio.AioRpcError) -> PacelineError | None:
    """What the target itself said; None where the status is not one of its own."""
    try:
        status = rpc_status.from_call(error)
    except ValueError:
        return None
    return from_status(status) if status is not None else None


def unknown_secret(error: grpc.aio.AioRpcError) -> bool:
    """Whether another secret may help."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED
