"""What HTTP costs beside gRPC: `python -m tests.bench.gateway_http`.

Both listeners of one gateway over the same fake target, in turns: the time to the first event, events per second of the
gateway's CPU time, and the time between messages of a stream beside 64 others of the other listener. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from tests.bench.gateway import PROMPT, cpu_seconds, process, request
from tests.bench.gpu.results import circumstances
from tests.integration.http_stack import COMPLETIONS, completion
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.http_client import Http

BESIDE = 64
MODEL = {"content-type": "application/json"}
WARM_UP = 20


@contextmanager
def gateway(target: str, folder: Path) -> Iterator[tuple[int, str, str]]:
    """Runs a gateway with both listeners; yields its pid and their addresses."""
    command = [sys.executable, "-m", "services.gateway", "--tokenizer", str(folder), "--targets", target]
    command += ["--http", "127.0.0.1:0", "--log-level", "error"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        bound = json.loads(started.stdout.readline())
        yield started.pid, bound["grpc"], bound["http"]
    finally:
        started.terminate()
        started.wait(timeout=60)


class OverHttp:
    """Streams over HTTP, a connection each that is kept."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def stream(self, tokens: int) -> AsyncIterator[None]:
        """One item an event."""
        pair = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
        http = Http(*pair)
        body = completion(PROMPT, stream=True, max_tokens=tokens, seed=1, temperature=0)
        await http.send("POST", COMPLETIONS, json.dumps(body).encode(), MODEL)
        head = await http.head()
        assert head.status_code == 200, head
        async for piece in http.pieces():
            for _ in range(piece.count(b"data: {")):
                yield None
        self._idle.append(pair)


class OverGrpc:
    """Streams over gRPC, all on one channel."""

    def __init__(self, channel: Any) -> None:
        self._stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)

    async def stream(self, tokens: int) -> AsyncIterator[None]:
        """One item a message."""
        async for _ in self._stub.Generate(request(tokens)):
            yield None


Side = OverHttp | OverGrpc


async def first_event_ms(side: Side) -> float:
    """Milliseconds from the call to its first event."""
    began, first = time.perf_counter(), 0.0
    async for _ in side.stream(1):
        first = first or time.perf_counter() - began
    return first * 1e3


async def first_events(sides: dict[str, Side], pairs: int) -> dict[str, float]:
    """Medians of both, in turns."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(pairs + WARM_UP):
        for name in sorted(sides, reverse=bool(number % 2)):
            found[name].append(await first_event_ms(sides[name]))
    return {f"{name}_ms": statistics.median(times[WARM_UP:]) for name, times in found.items()}


async def events_per_cpu_s(side: Side, pid: int, streams: int, tokens: int) -> float:
    """Events of many streams at once by the CPU time of the gateway."""

    async def read(count: int) -> int:
        return sum([1 async for _ in side.stream(count)])

    await asyncio.gather(*(read(8) for _ in range(streams)))
    cpu = cpu_seconds(pid)
    events = sum(await asyncio.gather(*(read(tokens) for _ in range(streams))))
    return events / (cpu_seconds(pid) - cpu)


async def gap_p99_ms(victim: Side, others: Side | None, tokens: int) -> float:
    """The 99th percentile of the time between a stream's messages, beside others or alone."""
    ending = False

    async def busy() -> None:
        while not ending:
            async for _ in others.stream(tokens) if others else ():  # type: ignore[union-attr]
                pass

    tasks = [asyncio.create_task(busy()) for _ in range(BESIDE)] if others else []
    await asyncio.sleep(0.5)
    gaps, last = [], 0.0
    for _ in range(4):
        last = 0.0
        async for _ in victim.stream(tokens):
            now = time.perf_counter()
            gaps += [(now - last) * 1e3] if last else []
            last = now
    ending = True
    await asyncio.gather(*tasks)
    return statistics.quantiles(gaps, n=100)[98]


async def measure(pairs: int, streams: int, tokens: int) -> dict[str, Any]:
    """All figures."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = write_tokenizer(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        for name, pace_s in (("first_event", 0.001), ("throughput", 0.01), ("beside", 0.05)):
            with ExitStack() as inner:
                _, target = inner.enter_context(process("tests.bench.gateway", "--serve-target", str(pace_s)))
                pid, grpc_address, http_address = inner.enter_context(gateway(target, folder))
                async with connect(grpc_address) as channel:
                    sides: dict[str, Side] = {"grpc": OverGrpc(channel), "http": OverHttp(http_address)}
                    found[name] = await _measured(name, sides, pid, pairs, streams, tokens)
    return found


async def _measured(name: str, sides: dict[str, Side], pid: int, pairs: int, streams: int, tokens: int) -> Any:
    if name == "first_event":
        return await first_events(sides, pairs)
    if name == "throughput":
        rounds = [{side: await events_per_cpu_s(sides[side], pid, streams, tokens) for side in sides} for _ in range(3)]
        medians = {side: statistics.median(one[side] for one in rounds) for side in sides}
        return {**medians, "ratio": medians["http"] / medians["grpc"]}
    other = {"grpc": "http", "http": "grpc"}
    figures = {}
    for side, neighbour in other.items():
        alone = await gap_p99_ms(sides[side], None, tokens // 4)
        beside = await gap_p99_ms(sides[side], sides[neighbour], tokens // 4)
        figures[side] = {"alone_p99_ms": alone, "beside_p99_ms": beside, "ratio": beside / alone}
    return figures


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--save", type=Path, help="folder of the JSON file")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.pairs, arguments.streams, arguments.tokens))
    for name, figures in found.items():
        print(name, figures)
    result = {"bench": "gateway_http", **circumstances("fake target", "tests.bench.gateway_http"), **found}
    if arguments.save:
        path = arguments.save / f"gateway_http_cpu_{time.strftime('%Y-%m-%d')}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
