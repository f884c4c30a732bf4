"""TLS for servers and channels; certificates are read again when their files change."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from services.common.request.errors import invalid_field
from services.common.serving.channel import connect, connect_sync
from services.common.serving.rotation import Rotation


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files; a client without a certificate has no cert and key, a server without mTLS no ca."""

    cert: str = ""
    key: str = ""
    ca: str = ""

    def __bool__(self) -> bool:
        return bool(self.cert or self.ca)

    def version(self) -> tuple[int, ...]:
        """Changes when a file does (Kubernetes swaps them by symbolic link)."""
        return tuple(Path(path).stat().st_mtime_ns for path in (self.cert, self.key, self.ca) if path)


def refuse_unfit(files: TlsFiles) -> None:
    """Looks whether a server can use the files.

    Raises:
        PacelineError: one holds no certificate or key, or the key is another certificate's; it names setting and file.
    """
    if files.cert:
        own = _certificates("tls_cert", files.cert)[0].public_key()
        if _private_key(files.key) != own:
            raise invalid_field("tls_key", f"{files.key}: is not the key of {files.cert}")
    if files.ca:
        _certificates("tls_ca", files.ca)


def _certificates(name: str, path: str) -> list[x509.Certificate]:
    data = _content(name, path)
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        swapped = "; it holds a private key: are tls_cert and tls_key swapped?" if b"PRIVATE KEY-----" in data else ""
        raise invalid_field(name, f"{path}: holds no certificate in PEM{swapped}") from None


def _private_key(path: str) -> object:
    """The public half of the key in a file."""
    data = _content("tls_key", path)
    try:
        return serialization.load_pem_private_key(data, None).public_key()
    except TypeError:
        raise invalid_field("tls_key", f"{path}: is encrypted; write it without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise invalid_field("tls_key", f"{path}: holds no private key in PEM") from None


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise invalid_field(name, f"{path}: cannot be read: {error.strerror}") from error


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that follow the files without a restart; with files.ca clients must present a certificate.

    Raises:
        OSError: when a file cannot be read.
    """
    rotation = Rotation(files.version, lambda: _configuration(files))
    return grpc.dynamic_ssl_server_credentials(
        rotation.present,
        rotation.changed,  # type: ignore[arg-type]  # gRPC takes None for "unchanged"; its types do not say so
        require_client_authentication=bool(files.ca),
    )


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    """gRPC itself takes a key of another certificate, and then refuses every client."""
    pair = (Path(files.key).read_bytes(), Path(files.cert).read_bytes())
    refuse_unfit(files)
    return grpc.ssl_server_certificate_configuration([pair], Path(files.ca).read_bytes() if files.ca else None)


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials of a client; with cert and key it presents itself (mTLS)."""
    return grpc.ssl_channel_credentials(
        root_certificates=Path(files.ca).read_bytes() if files.ca else None,
        private_key=Path(files.key).read_bytes() if files.key else None,
        certificate_chain=Path(files.cert).read_bytes() if files.cert else None,
    )


@dataclass(frozen=True)
class Peers:
    """How a client connects to peers of one kind: with TLS, or plaintext without files.

    ``name`` is what their certificates state when their addresses are not in them (pods found by IP).
    """

    files: TlsFiles = TlsFiles()
    name: str = ""

    def connect(self, address: str) -> grpc.aio.Channel:
        """A channel with the files as they are now, so that a rotation holds from the next connection on.

        Raises:
            OSError: a file cannot be read.
        """
        return connect(address, self._credentials(), self._options())

    def connect_sync(self, address: str, options: Sequence[tuple[str, int | str]] = ()) -> grpc.Channel:
        """A blocking channel in the same way.

        Raises:
            OSError: a file cannot be read.
        """
        return connect_sync(address, self._credentials(), [*self._options(), *options])

    def _credentials(self) -> grpc.ChannelCredentials | None:
        return channel_credentials(self.files) if self.files else None

    def _options(self) -> list[tuple[str, int | str]]:
        return [("grpc.ssl_target_name_override", self.name)] if self.name else []


def dns_names(path: str) -> frozenset[str]:
    """DNS names that the first certificate of a PEM file states, in lower case.

    Raises:
        OSError: when the file cannot be read.
        ValueError: when it holds no certificate.
    """
    extensions = x509.load_pem_x509_certificate(Path(path).read_bytes()).extensions
    try:
        stated = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in stated.get_values_for_type(x509.DNSName))


def client_names(files: TlsFiles, chosen: Sequence[str]) -> frozenset[str]:
    """Names of which a client's certificate must state one: those chosen, else those of the server's own certificate.

    Empty without files.ca: then clients present no certificate.

    Raises:
        PacelineError: none is chosen and the server's certificate states none.
        OSError, ValueError: that certificate cannot be read.
    """
    if not files.ca:
        return frozenset()
    names = frozenset(name.lower() for name in chosen) or dns_names(files.cert)
    if not names:
        raise invalid_field("target_client_names", f"needed, for {files.cert} states no DNS name")
    return names


def expiry(path: str) -> float:
    """When the first certificate of a PEM file expires, in seconds since the epoch.

    Raises:
        OSError: when the file cannot be read.
        ValueError: when it holds no certificate.
    """
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc.timestamp()
