"""The way to a gateway: what every example here begins with."""

from paceline import Client, NoGatewayError

ADDRESS = "127.0.0.1:50051"


def connected(address: str) -> Client:
    """A client of the gateway at an address; leave it by `with`.

    Raises:
        SystemExit: none answers there; the message says what to do.
    """
    try:
        return Client(address).__enter__()
    except NoGatewayError as error:
        raise SystemExit(f"{error}: start one with make up") from None
