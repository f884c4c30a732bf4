"""F10: a full disk, a folder that cannot be made, no descriptors left, no memory left. Streams go on or move."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from tests.faults.answers import request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet
from tests.integration.pair import ENVIRONMENT
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import write_tiny
from tests.support.warm import START_S

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS = 8, 100


def begin(command: Sequence[str], errors: Path) -> subprocess.Popen[str]:
    with errors.open("w") as sink:
        environment = {**os.environ, **ENVIRONMENT}
        command = [sys.executable, "-m", *command]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True, env=environment)


def bound(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["grpc"])


async def welcomed(address: str) -> None:
    """Waits until a target takes sessions."""
    async with asyncio.timeout(START_S):
        while True:
            client = SessionClient(address)
            await client.hello()
            await client.close()
            if client.welcome.pair_id:
                return


async def test_f10_a_target_serves_though_its_log_is_full(tmp_path: Path, size: Size) -> None:
    model = write_tiny(tmp_path, seed=5).target
    for _ in range(size(1, 10)):
        process = begin(["services.target", "--model", str(model), "--log-level", "debug"], Path("/dev/full"))
        try:
            address = await asyncio.to_thread(bound, process)
            await welcomed(address)
            async with SessionClient(address) as session:
                received = await session.start(start("r", [5, 6, 7], 20))
                await received.ended()
                assert len(received.tokens) == 20
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.mark.whole
async def test_f10_a_gateway_serves_though_its_log_is_full(fleet: Fleet, size: Size) -> None:
    (wanted,) = await fleet.expected(1, TOKENS)
    targets = [pair.bound["grpc"] for pair in fleet.pairs.values()]
    for _ in range(size(1, 10)):
        command = ["services.gateway", "--tokenizer", str(fleet.tokenizer), "--log-level", "debug", "--targets"]
        process = begin([*command, ",".join(targets)], Path("/dev/full"))
        try:
            async with connect(await asyncio.to_thread(bound, process)) as channel:
                stub = inference_pb2_grpc.InferenceServiceStub(channel)
                assert same(await fleet.ask(request(0, TOKENS), stub=stub), wanted)
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.mark.parametrize("folder", ["/proc/nowhere", pytest.param("/dev/null/under", marks=pytest.mark.whole)])
async def test_f10_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path, folder: str) -> None:
    models = write_tiny(tmp_path / "models", seed=5)
    log = tmp_path / "log"
    command = ["services.target", "--model", str(models.target), "--drafter-model", str(models.drafter)]
    process = begin([*command, "--drafter-address", f"unix:{tmp_path}/d", "--run-dir", folder], log)
    assert await asyncio.to_thread(process.wait, START_S) not in (0, None)
    assert folder in log.read_text()


async def test_f10_a_gateway_without_descriptors_keeps_its_streams(fleet: Fleet, size: Size) -> None:
    """New connections have to wait; they are taken once there are descriptors again."""
    expected = await fleet.expected(STREAMS, TOKENS)
    pid = fleet.gateway.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    for _ in range(size(1, 10)):
        streams = await fleet.begin_all(STREAMS, TOKENS)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            async with connect(fleet.gateway_address) as channel:
                stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.Generate(request(0, 1), timeout=2.0, wait_for_ready=True).read()
                assert refused.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
                for stream, wanted in zip(streams, expected, strict=True):
                    assert same(await stream.task, wanted)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
                assert same(await fleet.ask(request(0, TOKENS), stub=stub), expected[0])
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    await fleet.quiet()


@pytest.mark.whole
async def test_f10_a_target_without_memory_fails_nobody(fleet: Fleet, size: Size) -> None:
    """Its address space ends where it is: it goes on in what it has, or dies and its streams move."""
    expected = await fleet.expected(STREAMS, TOKENS)
    died = 0
    for _ in range(size(1, 10)):
        streams = await fleet.begin_all(STREAMS, TOKENS)
        process = fleet.pairs[0].target.process
        resource.prlimit(process.pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
        for stream, wanted in zip(streams, expected, strict=True):
            assert same(await stream.task, wanted)
        more = [await fleet.ask(request(number, TOKENS)) for number in range(STREAMS)]
        assert all(same(answer, wanted) for answer, wanted in zip(more, expected, strict=True))
        died += process.poll() is not None
        await fleet.replace_pair(0)
    await fleet.quiet()
    print(f"F10: targets that died of it: {died}")
