"""What a gateway costs before many pairs: `python -m tests.bench.fleet_size --pairs 10,100,300,1000`.

Targets are light fakes on ports of their own in two processes, the gateway is a process. All figures are CPU time of
that process: from its start until it has reached every pair, idle, for each plain request, and for each keyed one.
The last line is JSON.
"""

import argparse
import asyncio
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import duration_pb2

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, target_pb2, target_pb2_grpc, types_pb2
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import SERVER_OPTIONS, connect
from services.common.serving.process import raise_descriptors
from services.target.sessions.sessions import HEARTBEAT_S
from tests.bench.gateway import cpu_seconds
from tests.support.fakes_tokenizer import write_tokenizer

PROMPT, ANSWER, VOCABULARY = 128, 4, 512
"""Tokens: two blocks of prompt, so that a request has a home."""
AT_ONCE, TURNS = 8, 10


class LightTarget(target_pb2_grpc.TargetServiceServicer):
    """Answers every request in one frame; each session is one with a pair of its own."""

    def __init__(self, first: int, up_s: int) -> None:
        self._numbers = itertools.count(first)
        self._up = duration_pb2.Duration(seconds=up_s)
        self._info = types_pb2.ModelInfo(
            name="fake", revision="r", context_limit=4096, max_draft=3, vocab_size=VOCABULARY, dtype="float32"
        )

    async def Session(self, request_iterator: Any, context: Any) -> Any:
        """One gateway, which hears as little as it asks for: nothing changes but what its own requests bring."""
        hello = (await anext(request_iterator)).hello
        quiet_s = hello.quiet.ToMilliseconds() / 1e3 or HEARTBEAT_S
        out: asyncio.Queue[target_pb2.SessionResponse] = asyncio.Queue()
        reading = asyncio.create_task(self._read(request_iterator, out))
        welcome = target_pb2.Welcome(
            protocol_version=PROTOCOL_VERSION, pair_id=f"pair-{next(self._numbers)}", model=self._info,
            load=target_pb2.Load(slots=64, speculating=True), features=["ask"], up=self._up,
        )  # fmt: skip
        yield target_pb2.SessionResponse(welcome=welcome)
        quiet = target_pb2.SessionResponse(round=target_pb2.Round(load=target_pb2.Load(slots=64, speculating=True)))
        try:
            while True:
                try:
                    yield await asyncio.wait_for(out.get(), quiet_s * random.uniform(0.9, 1.0))
                except TimeoutError:
                    yield quiet
        finally:
            reading.cancel()

    async def Describe(self, request: Any, context: Any) -> target_pb2.TargetServiceDescribeResponse:
        """Says who it is."""
        return target_pb2.TargetServiceDescribeResponse(protocol_version=PROTOCOL_VERSION, model=self._info)

    async def _read(self, frames: Any, out: "asyncio.Queue[target_pb2.SessionResponse]") -> None:
        async for frame in frames:
            if frame.HasField("start"):
                await out.put(_answer(frame.start))
            elif frame.HasField("ask"):
                update = target_pb2.RequestUpdate(
                    request_id=frame.ask.request_id, end=target_pb2.RequestEnd(moved=True)
                )
                await out.put(target_pb2.SessionResponse(round=target_pb2.Round(updates=[update])))


def _answer(start: target_pb2.Start) -> target_pb2.SessionResponse:
    end = target_pb2.RequestEnd(finish_reason=types_pb2.FINISH_REASON_LENGTH)
    update = target_pb2.RequestUpdate(request_id=start.request_id, epoch=1, token_ids=[40] * ANSWER, end=end)
    load = target_pb2.Load(slots=64, speculating=True)
    return target_pb2.SessionResponse(round=target_pb2.Round(updates=[update], load=load))


async def serve(first: int, count: int, up_s: int) -> None:
    """The process of some fakes: one server on a port for each."""
    raise_descriptors()
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    target_pb2_grpc.add_TargetServiceServicer_to_server(LightTarget(first, up_s), server)
    ports = [server.add_insecure_port("127.0.0.1:0") for _ in range(count)]
    await server.start()
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


@contextmanager
def running(*words: str) -> Iterator[tuple[int, Any]]:
    """Runs a module; yields its pid and its first line."""
    started = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        yield started.pid, json.loads(started.stdout.readline())
    finally:
        started.terminate()
        started.wait(timeout=60)


def ready(address: str) -> float:
    """Pairs that the gateway has reached, as its page of metrics says."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        text = page.read().decode()
    found = re.search(r"^paceline_gateway_ready_targets\{.*\} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def measure(pairs: int, folder: Path, requests: int, idle_s: float, up_s: int) -> dict[str, float]:
    """Figures of one size of the fleet."""
    with ExitStack() as stack:
        halves = (pairs // 2, pairs - pairs // 2)
        ports = [
            port
            for first, count in zip((0, 100_000), halves, strict=True)
            for port in stack.enter_context(running("tests.bench.fleet_size", "--serve", f"{first},{count},{up_s}"))[1]
        ]
        config = folder / "gateway.toml"
        listed = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        config.write_text(f'tokenizer = "{folder}"\naccess_log = false\nlog_level = "error"\ntargets = [{listed}]\n')
        pid, bound = stack.enter_context(running("services.gateway", "--config", str(config)))
        async with connect(bound["grpc"]) as channel:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            async with asyncio.timeout(120):
                while await asyncio.to_thread(ready, bound["metrics"]) < pairs:
                    await asyncio.sleep(0.5)
            figures = {"pairs": float(pairs), "reached_s": cpu_seconds(pid)}
            await asyncio.sleep(3.0)
            begun = cpu_seconds(pid)
            await asyncio.sleep(idle_s)
            figures["idle_percent"] = idle = (cpu_seconds(pid) - begun) / idle_s * 100
            await load(stub, pid, requests // 4, "", 0.0)
            # In turns: a machine that other work slows down, slows both.
            costs = [[await load(stub, pid, requests // TURNS, key, idle) for key in ("", "key")] for _ in range(TURNS)]
            figures["plain_ms"], figures["keyed_ms"] = (sum(each) / TURNS for each in zip(*costs, strict=True))
            figures["keyed_ratio"] = figures["keyed_ms"] / figures["plain_ms"]
    return {name: round(value, 3) for name, value in figures.items()}


async def load(stub: Any, pid: int, requests: int, key: str, idle_percent: float) -> float:
    """CPU milliseconds of a request, less those of the gateway at rest."""
    numbers = iter(range(requests))
    begun, since = cpu_seconds(pid), time.monotonic()

    async def client() -> None:
        for number in numbers:
            ids = [number % VOCABULARY] * 64 + [number // VOCABULARY] * (PROMPT - 64)
            request = inference_pb2.GenerateRequest(
                prompt=inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=ids)),
                sampling=types_pb2.Sampling(seed=1),
                stopping=types_pb2.Stopping(max_tokens=ANSWER),
                idempotency_key=f"{key}{number}-{since}" if key else "",
            )
            async for _ in stub.Generate(request, timeout=30):
                pass

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    rest_s = (time.monotonic() - since) * idle_percent / 100
    return (cpu_seconds(pid) - begun - rest_s) / requests * 1e3


def main(argv: Sequence[str]) -> int:
    """Measures every size; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", default="10,100,300,1000")
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--idle-s", type=float, default=10.0)
    parser.add_argument("--up-s", type=int, default=86_400, help="how long the pairs say that they have served")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.serve:
        asyncio.run(serve(*map(int, chosen.serve.split(","))))
        return 0
    raise_descriptors()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), VOCABULARY)
        for pairs in map(int, chosen.pairs.split(",")):
            found.append(asyncio.run(measure(pairs, Path(folder), chosen.requests, chosen.idle_s, chosen.up_s)))
            print(found[-1], flush=True)
    print(json.dumps({"name": "fleet_size", "sizes": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
