"""How a client reaches a gateway: credentials, retries, the key of a tenant."""

from dataclasses import dataclass
from pathlib import Path

import grpc

REACH_S = 1.5
"""How long a gateway may take to accept a connection."""

SERVICE_CONFIG = (Path(__file__).parent / "service_config.json").read_text()
"""Spreads calls over all addresses of a name, and repeats a call that found no gateway before its first message."""

OPTIONS = (("grpc.service_config", SERVICE_CONFIG),)


@dataclass(frozen=True)
class Tls:
    """Files in PEM: `ca` that signed the gateway's certificate, and a certificate of our own where it wants one.

    `name` is what the certificate states if that is not the address. Without `ca` the system's authorities count.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files.

        Raises:
            OSError: one cannot be read.
        """
        ca, cert, key = (Path(file).read_bytes() if file else None for file in (self.ca, self.cert, self.key))
        return grpc.ssl_channel_credentials(ca, key, cert)

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Options of the channel."""
        return (*OPTIONS, ("grpc.ssl_target_name_override", self.name)) if self.name else OPTIONS


def metadata(key: str) -> tuple[tuple[str, str], ...]:
    """What every call says of who calls."""
    return (("authorization", f"Bearer {key}"),) if key else ()


def unreachable(address: str) -> str:
    """The sentence of NoGatewayError."""
    return f"no gateway answers at {address}"
