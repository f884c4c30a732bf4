"""The refusal of an attachment."""

from services.common.request.errors import Code, PacelineError, Reason


def refused(message: str) -> PacelineError:
    """The attachment is refused or gone."""
    return PacelineError(Code.FAILED_PRECONDITION, Reason.ATTACH_REFUSED, message)
