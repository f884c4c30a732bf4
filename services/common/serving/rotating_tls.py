"""TLS of a server that follows its files: every handshake uses the certificates of that moment, as with gRPC."""

import ssl
from typing import Any, Self

from services.common.serving.rotation import Rotation
from services.common.serving.tls import TlsFiles


class RotatingContext(ssl.SSLContext):
    """Hands each handshake to a context of the files as they are; files that cannot be used change nothing."""

    _rotation: Rotation[ssl.SSLContext]

    @classmethod
    def of(cls, files: TlsFiles, protocol: str) -> Self:
        """Reads the files; `protocol` is what both sides must speak, as ALPN names it.

        Raises:
            OSError: a file is missing or cannot be used.
        """
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        made._rotation = Rotation(files.version, lambda: _context(files, protocol))
        return made

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """As the context of the files does."""
        self._rotation.changed()
        return self._rotation.present.wrap_bio(*arguments, **named)


def _context(files: TlsFiles, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols([protocol])
    if files.ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.ca)
    return context
