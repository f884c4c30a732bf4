"""Checks the callers of an internal service: they must know its secret, or show a certificate that states a name."""

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from services.common.request.errors import Code, PacelineError, Reason

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class Callers:
    """What a caller must show; nothing where both are empty.

    `names` are DNS names of which a caller's certificate must state one, `secret` is what it must send.
    """

    names: frozenset[str] = frozenset()
    secret: str = field(default="", repr=False)

    def check(self, context: "grpc.aio.ServicerContext[Any, Any]", secret: str = "") -> None:
        """Lets a caller in, or refuses it; the secret is compared in constant time.

        Raises:
            PacelineError: PERMISSION_DENIED for a certificate without such a name, UNAUTHENTICATED for another secret.
        """
        if self.names and not self.names & _stated(context):
            raise PacelineError(
                Code.PERMISSION_DENIED, Reason.UNAUTHENTICATED, "the certificate states no name that may call here"
            )
        if not hmac.compare_digest(secret.encode(), self.secret.encode()):
            raise PacelineError(
                Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "the secret of this service is needed", "secret"
            )


def guarded(address: str, *proofs: object) -> bool:
    """Whether a listener is closed to strangers: its Unix socket is private, or callers must prove who they are."""
    return not address or address.startswith("unix:") or any(proofs)


def _stated(context: "grpc.aio.ServicerContext[Any, Any]") -> frozenset[str]:
    """DNS names of the caller's certificate."""
    found = (context.auth_context() or {}).get("peer_dns", ())
    return frozenset(each.decode(errors="replace").lower() for each in found)
