"""The id by which a client and the logs name a request: the client's own, or one that the gateway makes."""

import re
import secrets
from collections.abc import Iterable

from services.common.request.errors import invalid_field

HEADER = "x-request-id"
FORM = re.compile(r"[!-~]{1,128}")


def made() -> str:
    """A new id for a request whose client gave none."""
    return secrets.token_hex(8)


def from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None, otherwise: str = "") -> str:
    """The one that a call states, else the one that it has otherwise, or a new one.

    Raises:
        PacelineError: INVALID_FIELD, what it states is too long or cannot be printed.
    """
    for name, value in metadata or ():
        if name == HEADER:
            return checked(value if isinstance(value, str) else value.decode("latin-1"))
    return otherwise or made()


def offered(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The one that a call states if it may, else a new one; for calls that may be refused."""
    given = next((value for name, value in metadata if name == HEADER), None)
    return given if isinstance(given, str) and FORM.fullmatch(given) else made()


def checked(given: str) -> str:
    """An id of a client.

    Raises:
        PacelineError: INVALID_FIELD, it is too long or cannot be printed.
    """
    if not FORM.fullmatch(given):
        raise invalid_field(HEADER, "1 to 128 visible characters of ASCII are allowed")
    return given
