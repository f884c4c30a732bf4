"""One drafter process attaches and lets go two hundred times: its memory does not grow, on the GPU or beside it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from deploy.stack import ServiceProcess
from services.common.pair.attach_convert import offer_to_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect_sync
from services.target.build_device import Worker, build_worker
from services.target.drafting.offer import Offers, make_offers
from services.target.settings import TargetSettings
from tests.gpu.memory import used_bytes
from tests.integration.pair import ENVIRONMENT
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.support.tiny_checkpoints import TinyPair, write_tiny

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SETTLED, CYCLES = 20, 200
HOST_GROWTH = 16 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pl") as name:
        yield Path(name)


def worker_of(models: TinyPair) -> Worker:
    """A target's device side in this process: the owner of the arena."""
    return build_worker(
        TargetSettings(
            model=str(models.target),
            drafter_model=str(models.drafter),
            drafter_address="unix:/nowhere",
            device=DEVICE,
            slots=2,
            widths=(1, 4),
            context_limit=256,
        ),
        os.getpid(),
    )


def cycle(stub: rpc.DrafterServiceStub, offers: Offers, generation: int) -> None:
    """Attaches, ends the Pace stream, and sees that nothing is attached."""
    with offers.offer(generation) as offer:
        stub.Attach(offer_to_pb(offer), timeout=60)
    assert list(stub.Pace(iter(()), timeout=60)) == []
    request = pb.DrafterServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
    assert stub.Describe(request, timeout=10).generation == 0


def host_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_attaching_two_hundred_times_takes_no_memory(folder: Path) -> None:
    models = write_tiny(folder)
    worker = worker_of(models)
    offers = make_offers(worker.arena, worker.terms, folder / "side")
    address = f"unix:{folder}/d"
    command = ["services.drafter", "--model", str(models.drafter), "--grpc", address, "--device", DEVICE]
    drafter = ServiceProcess("drafter", command, folder, ENVIRONMENT)
    try:
        drafter.bound(60)
        with connect_sync(address) as channel:
            stub = rpc.DrafterServiceStub(channel)
            _wait_loaded(stub)
            for generation in range(1, SETTLED + 1):
                cycle(stub, offers, generation)
            device, host = used_bytes(), host_bytes(drafter.process.pid)
            curve: list[int] = []
            for generation in range(SETTLED + 1, CYCLES + 1):
                cycle(stub, offers, generation)
                if generation % 20 == 0:
                    curve.append(used_bytes() - device)
            grown = used_bytes() - device, host_bytes(drafter.process.pid) - host
        print(f"{CYCLES} cycles, {grown[0]} bytes of the GPU, {grown[1]} of the host; every 20 cycles {curve}")
        assert grown[0] <= 0
        assert grown[1] <= HOST_GROWTH
    finally:
        drafter.stop(0.0)
        offers.close()
        worker.close()


def _wait_loaded(stub: rpc.DrafterServiceStub) -> None:
    request = pb.DrafterServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
    for _ in range(300):
        try:
            stub.Describe(request, timeout=5)
        except grpc.RpcError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("the drafter does not load its checkpoint")
