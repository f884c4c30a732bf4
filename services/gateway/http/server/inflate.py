"""Bodies that were compressed, inflated as they come and never beyond what a body may have."""

import zlib
from http import HTTPStatus

from services.common.request.errors import Code, Reason, malformed
from services.gateway.http.schema.errors import RefusedError

ENCODINGS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Encodings that are taken, with zlib's number for each."""


STEP_BYTES = 1 << 16
"""What is inflated at once."""


class Plain:
    """A body as it is."""

    def push(self, piece: bytes, body: bytearray, most: int) -> None:
        """Adds the piece itself to the body."""
        body += piece

    def finish(self) -> None:
        """Checks that a body that was not compressed is whole, which it always is."""


class Inflater:
    """One compressed body."""

    def __init__(self, encoding: str) -> None:
        """Takes one of ENCODINGS."""
        self._encoding = encoding
        self._zlib = zlib.decompressobj(ENCODINGS[encoding])

    def push(self, piece: bytes, body: bytearray, most: int) -> None:
        """Adds what the piece becomes to the body, which has then at most one byte more than it may have.

        Raises:
            PacelineError: MALFORMED, it is not compressed so.
        """
        whole = False
        while not whole:
            room = min(STEP_BYTES, most + 1 - len(body))
            try:
                found = self._zlib.decompress(piece, room) if room > 0 else b""
            except zlib.error as error:
                raise malformed(f"the body is not {self._encoding}: {error}") from None
            body += found
            piece = self._zlib.unconsumed_tail
            whole = len(found) < room or room <= 0
        if self._zlib.unused_data:
            raise malformed(f"the body goes on behind the end of its {self._encoding}")

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
