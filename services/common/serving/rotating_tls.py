"""TLS of a server that follows its files: every handshake uses the certificates of that moment, as with gRPC."""

import logging
import ssl
from typing import Any, Self

from services.common.serving.tls import TlsFiles

logger = logging.getLogger(__name__)


class RotatingContext(ssl.SSLContext):
    """Hands each handshake to a context of the files as they are; files that cannot be used change nothing."""

    _files: TlsFiles
    _seen: tuple[int, ...]
    _present: ssl.SSLContext
    _protocol: str

    @classmethod
    def of(cls, files: TlsFiles, protocol: str) -> Self:
        """Reads the files; `protocol` is what both sides must speak, as ALPN names it.

        Raises:
            OSError: a file is missing or cannot be used.
        """
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        made._files, made._protocol = files, protocol
        made._seen, made._present = files.version(), _context(files, protocol)
        return made

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """As the context of the files does."""
        try:
            now = self._files.version()
            if now != self._seen:
                self._present = _context(self._files, self._protocol)
                self._seen = now
        except OSError as error:
            logger.error("the certificates stay as they were: %s", error)
        return self._present.wrap_bio(*arguments, **named)


def _context(files: TlsFiles, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols([protocol])
    if files.ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.ca)
    return context
