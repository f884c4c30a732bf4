"""Follows the pairs that a controller announces, and describes their changes."""

import threading

import grpc

from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect_sync

AGAIN_S = 0.2


class Fleet:
    """The latest list of a controller, kept by a thread of its own; the last one stays when the controller is gone."""

    def __init__(self, address: str) -> None:
        self.pairs: tuple[fleet_pb2.Pair, ...] = ()
        self._channel = connect_sync(address)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="fleet", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        watch = fleet_pb2_grpc.FleetServiceStub(self._channel).Watch
        request = fleet_pb2.WatchRequest(protocol_version=PROTOCOL_VERSION)
        while not self._closed.is_set():
            try:
                for response in watch(request, wait_for_ready=True):
                    self.pairs = tuple(response.pairs)
            except (grpc.RpcError, ValueError):
                pass  # The controller is gone, or the channel was closed.
            self._closed.wait(AGAIN_S)

    def close(self) -> None:
        """Ends the stream."""
        self._closed.set()
        self._channel.close()
        self._thread.join()


def news(before: fleet_pb2.Pair, now: fleet_pb2.Pair) -> str:
    """One line about what became of a pair that served; empty when users need not know."""
    ready = now.state == fleet_pb2.PAIR_STATE_READY
    if now.state == fleet_pb2.PAIR_STATE_FAILED and before.state != now.state:
        return f"{now.pair_id} failed: {now.message}"
    if now.message not in ("", before.message):
        return f"{now.pair_id}: {now.message}"
    if before.state == fleet_pb2.PAIR_STATE_READY and not ready:
        return f"{now.pair_id} does not serve; it is started again"
    if ready and (before.state, before.target_address) != (now.state, now.target_address):
        return f"{now.pair_id} serves again at {now.target_address} (target restarts: {now.target_restarts})"
    if now.drafter_restarts != before.drafter_restarts:
        return f"{now.pair_id}: its drafter was started again (restarts: {now.drafter_restarts})"
    return ""
