"""What strangers send to the three ports of a controller, and what that costs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc
from tests.faults.rest import footprint
from tests.faults.test_hostile import attack, attacks

CONNECTIONS, IDLE, WAIT_S = 14, 300, 30.0
SLOW = b"GET /metrics HTTP/1.1\r\nX-Slow: "
LARGE = b"GET /metrics HTTP/1.1\r\nX-Large: " + b"x" * 10_000_000


@dataclass(frozen=True)
class Cost:
    """The most that a process held beyond what it held before."""

    memory_mib: float
    threads: int
    descriptors: int


class Watched:
    """A process whose memory, threads and descriptors are looked at all the time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._now()
        self._most = self._before
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def cost(self) -> Cost:
        """What it took so far."""
        kib, threads, descriptors = (most - first for most, first in zip(self._most, self._before, strict=True))
        return Cost(kib / 1024, threads, descriptors)

    def at_rest(self, within_s: float) -> bool:
        """Whether its threads and descriptors are gone in time, but for some of what it keeps for the next."""
        end = time.monotonic() + within_s
        while any(now > first + 4 for now, first in list(zip(self._now(), self._before, strict=True))[1:]):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def _look(self) -> None:
        while not self._stopped.wait(0.02):
            first, second, third = self._now()
            self._most = max(self._most[0], first), max(self._most[1], second), max(self._most[2], third)

    def _now(self) -> tuple[int, int, int]:
        holds = footprint(self._pid)
        return holds.resident_kib, len(os.listdir(f"/proc/{self._pid}/task")), holds.descriptors


def hosts(address: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def idle(address: str) -> Iterator[None]:
    """Connections that say nothing, while it lasts."""
    loop = asyncio.new_event_loop()
    opened = [asyncio.open_connection(*hosts(address)) for _ in range(IDLE)]

    async def open_all() -> list[asyncio.StreamWriter]:
        found = await asyncio.gather(*opened, return_exceptions=True)
        return [each[1] for each in found if isinstance(each, tuple)]

    writers = loop.run_until_complete(open_all())
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def assault(bound: dict[str, str], most: int, rng: random.Random) -> int:
    """What one connection of HTTP/2 can send, at the ports of gRPC; large and, with all, slow requests for metrics.

    Gives how many connections that were, of which `most` are of HTTP/2.
    """
    sent = [(bound[name], data) for _, data in attacks() for name in ("grpc", "health")]
    sent = rng.sample(sent, min(most, len(sent)))
    sent += [(bound["metrics"], data) for data in (LARGE, *[SLOW] * (most > len(sent)))]

    async def all_of_it() -> None:
        at_once = asyncio.Semaphore(CONNECTIONS)

        async def one(address: str, data: bytes) -> None:
            async with at_once:
                await attack(address, data, 0.0)

        await asyncio.gather(*(one(*each) for each in sent))

    asyncio.run(all_of_it())
    return len(sent)


def first_calls(bound: dict[str, str]) -> dict[str, float]:
    """Seconds until each port answers behind idle connections of the same address.

    Raises:
        grpc.RpcError, OSError: one refuses.
    """
    took = {}
    for name, ask in (("grpc", _watched), ("health", _checked), ("metrics", _scraped)):
        with idle(bound[name]):
            began = time.monotonic()
            ask(bound[name])
            took[name] = time.monotonic() - began
    return took


def _watched(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub: Any = fleet_pb2_grpc.FleetServiceStub(channel)
        assert next(iter(stub.Watch(fleet_pb2.WatchRequest(protocol_version=1), timeout=WAIT_S))).pairs


def _checked(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status


def _scraped(address: str) -> None:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
        assert b"paceline_" in answer.read()
