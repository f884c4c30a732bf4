"""Checks the callers of an internal service: they must know its secret, or show a certificate that states a name."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from services.common.request.errors import Code, PacelineError, Reason
from services.common.serving.front.front import Front
from services.common.serving.rotating_tls import RotatingContext
from services.common.serving.secret import Secret
from services.common.serving.tls import TlsFiles, server_credentials

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class Callers:
    """What a caller must show; nothing where both are empty.

    `names` are DNS names of which a caller's certificate must state one, `secret` is what it must send. A `front` that
    asks for proof knows the certificate, and is told who has shown all.
    """

    names: frozenset[str] = frozenset()
    secret: Secret = field(default_factory=Secret, repr=False)
    front: Front | None = field(default=None, repr=False)

    def check(self, context: "grpc.aio.ServicerContext[Any, Any]", secret: str = "") -> None:
        """Lets a caller in, or refuses it; the secret is compared in constant time.

        Raises:
            PacelineError: PERMISSION_DENIED for a certificate without such a name, UNAUTHENTICATED for another secret.
        """
        if self.names and not self.names & self._stated(context):
            raise PacelineError(
                Code.PERMISSION_DENIED, Reason.UNAUTHENTICATED, "the certificate states no name that may call here"
            )
        if not self.secret.matches(secret):
            raise PacelineError(
                Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "the secret of this service is needed", "secret"
            )
        if self.front is not None:
            self.front.prove(context.peer())

    def _stated(self, context: "grpc.aio.ServicerContext[Any, Any]") -> frozenset[str]:
        """DNS names of the caller's certificate."""
        if self.front is not None:
            return self.front.stated(context.peer())
        found = (context.auth_context() or {}).get("peer_dns", ())
        return frozenset(each.decode(errors="replace").lower() for each in found)


def guarded(address: str, *proofs: object) -> bool:
    """Whether a listener is closed to strangers: its Unix socket is private, or callers must prove who they are."""
    return not address or address.startswith("unix:") or any(proofs)


def entry(address: str, tls: TlsFiles, proof: bool) -> "grpc.ServerCredentials | Front | None":
    """What stands before the gRPC of a service of the cluster: a front over TCP; a Unix socket is private.

    Args:
        address: where it listens.
        tls: its files; with an authority only peers with its certificates pass the handshake.
        proof: the service checks its callers, and tells the front whom it knows. One that does not takes whoever has a
            certificate of the authority, and needs no front then: nobody else gets as far as HTTP/2.

    Raises:
        OSError: a file cannot be used.
    """
    if not address or address.startswith("unix:") or (tls.ca and not proof):
        return server_credentials(tls) if tls else None
    return Front(context=RotatingContext.of(tls, "h2") if tls else None, proof=proof)
