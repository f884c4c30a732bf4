"""How a client reaches a gateway: credentials, retries, the key of a tenant."""

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from paceline.errors import InvalidValueError, NoGatewayError

REACH_S = 1.5
"""How long a gateway may take to accept a connection."""

LOOK_S = 0.5
"""A synchronous channel is asked again after this time whether it is connected."""

EXAMPLE = "127.0.0.1:50051"
GRPC_NAME = re.compile(r"(dns|unix|unix-abstract|ipv4|ipv6|vsock|xds|passthrough):")
URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)", re.IGNORECASE)
HOST_PORT = re.compile(r"(\[[0-9a-f:.%]+\]|[^\s:/\[\]]+):(\d{1,5})", re.IGNORECASE)

SERVICE_CONFIG = (Path(__file__).parent / "service_config.json").read_text()
"""Spreads calls over all addresses of a name, and repeats a call that found no gateway before its first message."""

LOOPBACK = re.compile(r"(ipv[46]:)?(127\.|localhost:|\[::1\])|unix", re.IGNORECASE)


@dataclass(frozen=True)
class Tls:
    """Certificates, as files in PEM."""

    ca: str = ""
    """The authority that signed the gateway's certificate; without it the system's authorities count."""
    cert: str = ""
    """A certificate of our own, where the gateway wants one."""
    key: str = ""
    """Its private key."""
    name: str = ""
    """The name that the gateway's certificate states, if that is not the address."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files.

        Raises:
            OSError: one cannot be read.
        """
        ca, cert, key = (Path(file).read_bytes() if file else None for file in (self.ca, self.cert, self.key))
        return grpc.ssl_channel_credentials(ca, key, cert)


def channel_options(address: str, tls: Tls | None = None) -> tuple[tuple[str, str | int], ...]:
    """Options of a channel. No proxy of the environment stands between this machine and itself."""
    found: tuple[tuple[str, str | int], ...] = (("grpc.service_config", SERVICE_CONFIG),)
    if LOOPBACK.match(address):
        found += (("grpc.enable_http_proxy", 0),)
    return (*found, ("grpc.ssl_target_name_override", tls.name)) if tls and tls.name else found


def metadata(key: str) -> tuple[tuple[str, str], ...]:
    """What every call says of who calls.

    Raises:
        InvalidValueError: no header can hold the key; it is not repeated.
    """
    if not isinstance(key, str) or not key.isascii() or not (key + "x").isprintable() or " " in key:
        raise InvalidValueError("key: a key is a text of visible ASCII characters")
    return (("authorization", f"Bearer {key}"),) if key else ()


def checked(address: str) -> str:
    """An address as gRPC takes it.

    Raises:
        InvalidValueError: it is none; the message says what to give.
    """
    if not isinstance(address, str):
        raise InvalidValueError(f"address: {address!r} is not a text HOST:PORT, such as {EXAMPLE}")
    if GRPC_NAME.match(address):
        return address
    if url := URL.match(address):
        also = ", and tls=Tls(...) for TLS" if url[1].lower() in ("https", "grpcs") else ""
        raise InvalidValueError(
            f"address: {address!r} is a URL; give HOST:PORT of the gateway's gRPC listener, such as {EXAMPLE}{also}. "
            "For an HTTP listener take a client of OpenAI's API, with its URL and /v1"
        )
    found = HOST_PORT.fullmatch(address)
    if not found or not 0 < int(found[2]) < 65536:
        raise InvalidValueError(f"address: {address!r} is not HOST:PORT, such as {EXAMPLE} or [::1]:50051")
    return address


def secured(tls: Tls) -> grpc.ChannelCredentials:
    """What a channel with TLS is made with.

    Raises:
        InvalidValueError: it is no Tls.
        OSError: a file cannot be read.
    """
    if not isinstance(tls, Tls):
        raise InvalidValueError(f"tls: {tls!r} is no Tls; give Tls('ca.pem')")
    return tls.credentials()


def unreachable(address: str) -> str:
    """The sentence of NoGatewayError."""
    return f"no gateway answers at {address}"


def never_arrived(error: grpc.RpcError) -> bool:
    """The call found nobody: gRPC itself ended it, for no server's word came with the end."""
    call: Any = error
    return call.code() is grpc.StatusCode.UNAVAILABLE and not call.trailing_metadata()


class Reach:
    """Whether a gateway has taken the connection of a synchronous channel; any number of threads may ask.

    gRPC tells it by a thread that lives for a fifth of a second, and that thread fails aloud where it is asked twice in
    its life and the channel is closed. So it is asked now and then, by one thread of the program at a time.
    """

    def __init__(self, channel: grpc.Channel, address: str) -> None:
        """Nothing is connected yet."""
        self._channel = channel
        self._address = address
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._taken = False

    def wait(self) -> None:
        """Waits for the connection, which one that is open already has.

        Raises:
            NoGatewayError: nobody took it in time.
        """
        with self._lock:
            if time.monotonic() - self._looked > LOOK_S:
                self._taken = self._look()
                self._looked = time.monotonic()
            taken = self._taken
        if not taken:
            raise NoGatewayError(unreachable(self._address))

    def _look(self) -> bool:
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=REACH_S)
        except grpc.FutureTimeoutError:
            ready.cancel()
            return False
        return True
