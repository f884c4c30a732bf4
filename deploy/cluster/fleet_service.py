"""FleetService: the registry on the wire."""

from collections.abc import AsyncIterator

import grpc

from deploy.cluster.registry import PairEntry, Registry, Snapshot
from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc
from services.common.request.errors import Code, PacelineError, Reason
from services.common.serving.callers import Callers

PROTOCOL_VERSION = 1
_STATES = {
    "starting": fleet_pb2.PAIR_STATE_STARTING,
    "ready": fleet_pb2.PAIR_STATE_READY,
    "draining": fleet_pb2.PAIR_STATE_DRAINING,
    "down": fleet_pb2.PAIR_STATE_DOWN,
    "failed": fleet_pb2.PAIR_STATE_FAILED,
}


class FleetService(fleet_pb2_grpc.FleetServiceServicer):
    """Streams the list of pairs to gateways."""

    def __init__(self, registry: Registry, callers: Callers = Callers()) -> None:
        self._registry = registry
        self._callers = callers

    async def Watch(
        self, request: fleet_pb2.WatchRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> AsyncIterator[fleet_pb2.WatchResponse]:
        """Sends every version of the list.

        Raises:
            PacelineError: FAILED_PRECONDITION, when the caller speaks another version of the contract;
                PERMISSION_DENIED, when its certificate states no name of a gateway.
        """
        self._callers.check(context)
        if request.protocol_version != PROTOCOL_VERSION:
            raise PacelineError(
                Code.FAILED_PRECONDITION,
                Reason.PROTOCOL,
                f"this controller speaks version {PROTOCOL_VERSION}, not {request.protocol_version}",
                field="protocol_version",
            )
        async for snapshot in self._registry.watch():
            yield to_response(snapshot)


def to_response(snapshot: Snapshot) -> fleet_pb2.WatchResponse:
    """The snapshot as a message."""
    return fleet_pb2.WatchResponse(
        protocol_version=PROTOCOL_VERSION,
        version=snapshot.version,
        pairs=[to_pair(entry) for entry in snapshot.pairs],
    )


def to_pair(entry: PairEntry) -> fleet_pb2.Pair:
    """One entry as a message."""
    return fleet_pb2.Pair(
        pair_id=entry.pair_id,
        target_address=entry.target_address,
        model=entry.model,
        state=_STATES[entry.state],
        gpu_uuids=entry.gpu_uuids,
        target_restarts=entry.target_restarts,
        drafter_restarts=entry.drafter_restarts,
        metrics_address=entry.metrics_address,
        gpu_sharing=entry.gpu_sharing,
        message=entry.message,
    )
