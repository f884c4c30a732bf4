"""paceline's side: a target and a drafter under MPS, as a pair is served, with answers in a closed loop."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from deploy.cluster.derived import default_dtype
from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect_sync
from tests.bench.gpu.load import speculation_of
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.real_text.loads import Load, Row, Told, row_of
from tests.bench.nodes_offline import Pair
from tests.support.session_client import Received, SessionClient, start

READY_S = 300.0
WIDTHS = "1,4,8,16"


@dataclass(frozen=True)
class Options:
    """How the pair is started; `flags` are further ones of the target, `weights` what drafts are multiplied by."""

    device: str
    slots: int
    memory_bytes: int
    flags: tuple[str, ...] = ()
    weights: str = "auto"


def paceline_rows(
    pair: Pair, loads: Sequence[Load], drafts: Sequence[int | None], options: Options, wait: Callable[[], None]
) -> list[Row]:
    """Start the pair, `wait`, and measure every load, by widths it chooses (None), that are fixed, or plain (0)."""
    with Mps(options.device == "cuda") as environment, tempfile.TemporaryDirectory(prefix="pl") as name:
        folder = Path(name)
        drafter = ServiceProcess("drafter", _drafter(pair, folder, options), folder, environment)
        target = ServiceProcess("target", _target(pair, folder, options), folder, environment)
        try:
            address = _wait_attached(target)
            wait()
            return asyncio.run(_measured(address, pair, loads, drafts))
        finally:
            for process in (target, drafter):
                process.stop()
                print(f"{process.name}: {process.tail(1500)}")


async def _measured(address: str, pair: Pair, loads: Sequence[Load], drafts: Sequence[int | None]) -> list[Row]:
    rows = []
    async with SessionClient(address) as client:
        for load in loads:
            for draft in drafts:
                await _told(client, pair, load, draft)  # it learns what rounds take and bring
                told = [await _told(client, pair, load, draft) for _ in range(load.repeats)]
                rows.append(row_of("paceline", draft, load, told))
                print(rows[-1], flush=True)
    return rows


def _wait_attached(target: ServiceProcess) -> str:
    """Return the target's address once rounds have drafts."""
    end, address = time.monotonic() + READY_S, target.bound(READY_S)["grpc"]
    while time.monotonic() < end:
        target.check()
        with connect_sync(address) as channel:
            request = pb.TargetServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
            try:
                if rpc.TargetServiceStub(channel).Describe(request, timeout=5).attachment == "attached":
                    return address
            except grpc.RpcError:
                pass  # it loads
        time.sleep(0.2)
    raise TimeoutError(f"no attachment within {READY_S} s\n{target.tail()}")


async def _told(client: SessionClient, pair: Pair, load: Load, draft: int | None) -> Told:
    """Run one repeat."""
    limit, writing, mark = asyncio.Semaphore(load.streams), asyncio.Lock(), time.monotonic_ns()

    async def one(index: int) -> Received:
        async with limit:
            async with writing:
                received = await client.start(_frame(f"{mark}-{index}", pair, index, load, draft))
            await received.ended()
        return received

    began = time.perf_counter()
    found = await asyncio.gather(*map(one, range(load.count)))
    seconds = time.perf_counter() - began
    tokens = sum(len(one.tokens) for one in found)
    rounds = sum(int(one.end.speculation.rounds) for one in found)
    client.rounds.clear()
    client.requests.clear()
    return Told(seconds, tokens, (tokens - load.count) / max(1, rounds))


def _frame(name: str, pair: Pair, index: int, load: Load, draft: int | None) -> pb.Start:
    """Return a request whose prompt is in no cache, as the peer's caches are off."""
    sampling = types.Sampling(temperature=load.temperature, seed=index)
    prompt = pair.prompts[index % len(pair.prompts)]
    frame = start(
        name, prompt, load.tokens, sampling=sampling, speculation=speculation_of(draft), tenant_salt=name.encode()
    )
    frame.stopping.ignore_eos = False
    return frame


def _target(pair: Pair, folder: Path, options: Options) -> list[str]:
    command = ["services.target", "--model", str(pair.target), "--drafter-model", str(pair.drafter)]
    command += ["--drafter-address", f"unix:{folder}/d.sock", "--run-dir", str(folder), "--device", options.device]
    command += ["--slots", str(options.slots), "--widths", WIDTHS, "--grpc", f"unix:{folder}/t.sock"]
    command += ["--memory-bytes", str(options.memory_bytes), "--max-queued-tokens", "1000000", *_dtype(options)]
    return [*command, "--drafter-weights", options.weights, *options.flags]


def _drafter(pair: Pair, folder: Path, options: Options) -> list[str]:
    command = ["services.drafter", "--model", str(pair.drafter), "--grpc", f"unix:{folder}/d.sock"]
    return [*command, "--device", options.device, "--weights", options.weights, *_dtype(options)]


def _dtype(options: Options) -> list[str]:
    """Return what `paceline serve` chooses; the services themselves take float32 where nothing is said."""
    return ["--dtype", default_dtype(options.device)]
