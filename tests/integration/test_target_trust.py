"""Who may use a target or a drafter: nobody but its user over a Unix socket, nobody without a proof over TCP."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from deploy.stack import REPOSITORY
from services.common.pb.paceline.v1 import target_pb2, target_pb2_grpc
from services.common.request.errors import PacelineError
from services.common.serving.channel import connect
from services.common.serving.tls import TlsFiles, channel_credentials
from services.target.app import TargetApp
from services.target.settings import TargetSettings
from tests.integration.gateway_stack import ask_for, harness
from tests.integration.pair import PairProcesses
from tests.support.fakes_target import FakeTarget
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import write_tiny
from tests.support.warm import START_S
from tests.unit.common.serving.certificates import Authority

NOBODY = 65534
SECRET = "known to gateways and targets"
STARTING = grpc.StatusCode.UNAVAILABLE
"""What a target says whose model is not there to callers that it would serve."""


def tried(uid: int, kind: str, address: str, secret: str = "") -> dict[str, Any]:
    """What a process of this user gets from a target or a drafter."""
    command = [sys.executable, "-m", "tests.integration.stranger", str(uid), kind, address, secret]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    return dict(json.loads(done.stdout))


@asynccontextmanager
async def target(folder: Path, **settings: Any) -> AsyncIterator[str]:
    """The address of a target that has no model."""
    app = TargetApp(TargetSettings(model=str(folder / "none"), propagation_s=0.0, **settings))
    bound = await app.start()
    try:
        yield bound.grpc
    finally:
        assert app.fatal is not None
        await asyncio.wait([app.fatal])
        assert app.fatal.exception() is not None
        await app.drain()


async def status(address: str, secret: str = "", credentials: grpc.ChannelCredentials | None = None) -> Any:
    """How a target answers Hello, which is how it answers Describe."""
    client = SessionClient(address, secret=secret, credentials=credentials)
    await client.hello()
    await client.close()
    async with connect(address, credentials) as channel:
        stub: Any = target_pb2_grpc.TargetServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Describe(target_pb2.TargetServiceDescribeRequest(protocol_version=1, secret=secret))
    assert client.status is refused.value.code()
    return client.status


def test_another_user_reaches_neither_socket_of_a_pair() -> None:
    """The folder that holds the run folder lets everybody in, so that the pair's own modes are what is tried."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        pair = PairProcesses(folder, write_tiny(folder / "models", seed=3))
        try:
            pair.wait_ready()
            sockets = {"target": pair.bound["grpc"], "drafter": pair.drafters[0].bound(START_S)["grpc"]}
            for kind, address in sockets.items():
                path = Path(address.removeprefix("unix:"))
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, "not even a folder that is open lets others in"
                assert tried(os.getuid(), kind, address)["status"] == "OK"
                if os.getuid() == 0:
                    assert tried(NOBODY, kind, address) == {"status": "UNAVAILABLE", "tokens": 0}
            folder_mode = Path(pair.bound["grpc"].removeprefix("unix:")).parent.stat().st_mode
            assert stat.S_IMODE(folder_mode) == 0o700
            assert tried(os.getuid(), "target", pair.bound["grpc"])["tokens"] == 4
        finally:
            pair.stop()


async def test_over_tcp_a_secret_is_needed(tmp_path: Path) -> None:
    async with target(tmp_path, grpc="127.0.0.1:0", session_secret=SECRET) as address:
        assert await status(address, SECRET) is STARTING
        for wrong in ("", SECRET[:-1], SECRET + "é"):
            assert await status(address, wrong) is grpc.StatusCode.UNAUTHENTICATED
        uid = NOBODY if os.getuid() == 0 else os.getuid()
        assert await asyncio.to_thread(tried, uid, "target", address) == {"status": "UNAUTHENTICATED", "tokens": 0}


async def test_a_certificate_of_the_authority_must_state_the_name_of_a_gateway(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "internal", "internal")
    tls: dict[str, Any] = {"grpc": "127.0.0.1:0", "tls_cert": cert, "tls_key": key, "tls_ca": ca}

    def issued(name: str, host: str) -> grpc.ChannelCredentials:
        return channel_credentials(TlsFiles(*authority.issue(tmp_path / name, "localhost", host=host), ca))

    same, gateway, client = issued("same", "LOCALHOST"), issued("gateway", "gateway.example"), issued("c", "c.example")
    async with target(tmp_path, **tls) as address:
        assert await status(address, credentials=same) is STARTING
        assert await status(address, credentials=gateway) is grpc.StatusCode.PERMISSION_DENIED
    async with target(tmp_path, **tls, target_client_names=("other", "gateway.example")) as address:
        assert await status(address, credentials=gateway) is STARTING
        assert await status(address, credentials=same) is grpc.StatusCode.PERMISSION_DENIED
        assert await status(address, credentials=client) is grpc.StatusCode.PERMISSION_DENIED
    async with target(tmp_path, **tls, session_secret=SECRET) as address:
        assert await status(address, "", same) is grpc.StatusCode.UNAUTHENTICATED
        assert await status(address, SECRET, same) is STARTING


def test_a_certificate_without_a_name_needs_names_beside(tmp_path: Path) -> None:
    """A default that lets nobody in, or everybody, helps nobody."""
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    _, key = authority.issue(tmp_path / "internal", "internal")
    with pytest.raises(PacelineError) as refused:
        TargetApp(TargetSettings(model="m", grpc="127.0.0.1:0", tls_cert=ca, tls_key=key, tls_ca=ca))
    assert refused.value.field == "target_client_names"


async def test_a_gateway_sends_its_secret(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget()], target_secret=SECRET) as one:
        await one.ask(ask_for())
        assert one.targets[0].secrets == {SECRET}
