"""The way to a gateway: what every example here begins with."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

ADDRESS = "127.0.0.1:50051"
REACH_S = 1.5


@contextmanager
def connect(address: str) -> Iterator[grpc.Channel]:
    """A channel to the gateway at an address.

    Raises:
        SystemExit: none answers there; the message says what to do.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=REACH_S)
        except grpc.FutureTimeoutError:
            raise SystemExit(f"no gateway answers at {address}: start one with make up") from None
        yield channel
