"""Sources of pairs: a static list, a DNS name, a Watch stream. The last list of a lost source stays in force."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Protocol, cast

import grpc

from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.addresses import host_port
from services.common.serving.tls import Peers
from services.gateway.fleet.backoff import Backoff
from services.gateway.fleet.outage import Outage
from services.gateway.fleet.pairs import PairEntry

log = logging.getLogger(__name__)


class Report(Protocol):
    """Where a source reports."""

    def publish(self, entries: Sequence[PairEntry]) -> None:
        """The whole list, at once and again at every change."""

    def lost(self, error: Exception) -> None:
        """The source cannot be reached; its last list stays in force."""


class Source(Protocol):
    """One place that knows pairs."""

    async def run(self, report: Report) -> None:
        """Reports until cancelled."""


class StaticSource:
    """Addresses that never change."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Takes host:port addresses."""
        self._entries = [PairEntry(address) for address in addresses]

    async def run(self, report: Report) -> None:
        """Publishes once."""
        report.publish(self._entries)


class DnsSource:
    """A name that resolves to all targets, such as a headless service's; asked again every few seconds."""

    def __init__(self, name: str, interval_s: float) -> None:
        """Takes host:port."""
        self._host, _, self._port = name.rpartition(":")
        self._interval_s = interval_s

    async def run(self, report: Report) -> None:
        """Publishes what the name resolves to; an answer that is empty or fails changes nothing."""
        outage = Outage(f"name {self._host}:{self._port}")
        while True:
            try:
                report.publish(await self._resolve())
                outage.over()
            except OSError as error:
                outage.goes_on(error)
                report.lost(error)
            await asyncio.sleep(self._interval_s)

    async def _resolve(self) -> list[PairEntry]:
        loop = asyncio.get_running_loop()
        answers = await loop.getaddrinfo(self._host, int(self._port), type=socket.SOCK_STREAM)
        hosts = sorted({str(answer[4][0]) for answer in answers})
        return [PairEntry(host_port(host, int(self._port))) for host in hosts]


class WatchSource:
    """The fleet controller's Watch stream."""

    def __init__(self, address: str, peers: Peers) -> None:
        """Takes the controller's address."""
        self._address = address
        self._peers = peers

    async def run(self, report: Report) -> None:
        """Publishes every list the controller sends; reconnects for ever."""
        backoff, outage = Backoff(), Outage(f"controller {self._address}")
        while True:
            try:
                async with self._peers.connect(self._address) as channel:
                    stub = cast("fleet_pb2_grpc.FleetServiceAsyncStub", fleet_pb2_grpc.FleetServiceStub(channel))
                    async for response in stub.Watch(fleet_pb2.WatchRequest(protocol_version=PROTOCOL_VERSION)):
                        backoff.reset()
                        outage.over()
                        self._take(response, report)
            except (grpc.RpcError, OSError) as error:
                outage.goes_on(error)
                report.lost(error)
            await backoff.wait()

    def _take(self, response: fleet_pb2.WatchResponse, report: Report) -> None:
        if response.protocol_version != PROTOCOL_VERSION:
            log.error("watch source speaks another version", extra={"data": {"source": self._address}})
            return
        report.publish([_entry(pair) for pair in response.pairs if pair.target_address])


def _entry(pair: fleet_pb2.Pair) -> PairEntry:
    return PairEntry(pair.target_address, pair.pair_id, pair.state == fleet_pb2.PAIR_STATE_DRAINING)
