"""Bodies that were compressed, inflated as they come and never beyond what a body may have."""

import zlib
from http import HTTPStatus

from services.common.request.errors import Code, Reason, malformed
from services.gateway.http.schema.errors import RefusedError

ENCODINGS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Encodings that are taken, with zlib's number for each."""


class Plain:
    """A body as it is."""

    def push(self, piece: bytes, room: int) -> bytes:
        """The piece itself."""
        return piece

    def finish(self) -> None:
        """Nothing is missing."""


class Inflater:
    """One compressed body."""

    def __init__(self, encoding: str) -> None:
        """Takes one of ENCODINGS."""
        self._encoding = encoding
        self._zlib = zlib.decompressobj(ENCODINGS[encoding])

    def push(self, piece: bytes, room: int) -> bytes:
        """What the piece becomes, at most one byte more than there is room.

        Raises:
            PacelineError: MALFORMED, it is not compressed so.
        """
        try:
            found = self._zlib.decompress(piece, room + 1)
        except zlib.error as error:
            raise malformed(f"the body is not {self._encoding}: {error}") from None
        if self._zlib.unused_data:
            raise malformed(f"the body goes on behind the end of its {self._encoding}")
        return found

    def finish(self) -> None:
        """Checks that the body was whole.

        Raises:
            PacelineError: MALFORMED, it is cut.
        """
        if not self._zlib.eof:
            raise malformed(f"the body ends in the middle of its {self._encoding}")


def reader(stated: str) -> Plain | Inflater:
    """What reads a body with this Content-Encoding.

    Raises:
        RefusedError: 415, it is none that is taken.
    """
    encoding = stated.strip().lower()
    if encoding in ("", "identity"):
        return Plain()
    if encoding in ENCODINGS:
        return Inflater(encoding)
    text = f"Content-Encoding {stated[:64]!r} is not taken, gzip and deflate are"
    headers = (("accept-encoding", "gzip, deflate"),)
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    raise RefusedError(status, Code.INVALID_ARGUMENT, Reason.MALFORMED, text, headers)
