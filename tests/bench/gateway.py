"""What the gateway costs: `python -m tests.bench.gateway`.

Overhead: the time to the first token through the gateway less that of a direct session with the target, in alternating
pairs. Throughput: client messages per second of CPU time of the gateway's process. Target, gateway and client are
processes of their own; the target is a fake that commits at a fixed pace. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, target_pb2, target_pb2_grpc, types_pb2
from services.common.serving.channel import connect
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer

PROMPT = [7, 8, 9, 10]


@contextmanager
def process(*arguments: str, stderr: TextIO | None = None) -> Iterator[tuple[int, str]]:
    """Runs a module; yields its pid and the gRPC address that its first line states."""
    started = subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert started.stdout is not None
        yield started.pid, json.loads(started.stdout.readline())["grpc"]
    finally:
        started.terminate()
        started.wait(timeout=30)


async def serve_target(pace_s: float, slots: int) -> None:
    """The fake target's process."""
    target = FakeTarget(pace_s=pace_s, slots=slots, context_limit=8192)
    print(json.dumps({"grpc": await target.start()}), flush=True)
    await asyncio.Event().wait()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(max_tokens: int) -> inference_pb2.GenerateRequest:
    """A request of four tokens."""
    return inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=PROMPT)),
        sampling=types_pb2.Sampling(seed=1),
        stopping=types_pb2.Stopping(max_tokens=max_tokens),
    )


class Direct:
    """A session with the target, as the gateway holds one."""

    def __init__(self, channel: Any) -> None:
        stub: Any = target_pb2_grpc.TargetServiceStub(channel)
        self._call: Any = stub.Session()
        self._number = 0

    async def open(self) -> None:
        """Says hello."""
        await self._call.write(target_pb2.SessionRequest(hello=target_pb2.Hello(protocol_version=1, gateway_id="b")))
        await self._call.read()

    async def first_token(self) -> float:
        """Seconds from the start of a request to its only token."""
        self._number += 1
        start = target_pb2.Start(
            request_id=str(self._number),
            token_ids=PROMPT,
            prompt_length=len(PROMPT),
            sampling=types_pb2.Sampling(seed=1),
            stopping=types_pb2.Stopping(max_tokens=1),
        )
        began = time.perf_counter()
        await self._call.write(target_pb2.SessionRequest(start=start))
        while not any(update.token_ids for update in (await self._call.read()).round.updates):
            pass
        return time.perf_counter() - began


async def through_gateway(stub: Any) -> float:
    """Seconds from the call to the first delta."""
    began = time.perf_counter()
    first = 0.0
    async for _ in stub.Generate(request(1)):
        first = first or time.perf_counter() - began
    return first


async def overhead(target: str, gateway: str, pairs: int) -> dict[str, float]:
    """Differences of alternating pairs in milliseconds."""
    async with connect(target) as one, connect(gateway) as two:
        direct, stub = Direct(one), inference_pb2_grpc.InferenceServiceStub(two)
        await direct.open()
        differences = []
        for number in range(pairs + 20):
            if number % 2:
                plain, routed = await direct.first_token(), await through_gateway(stub)
            else:
                routed, plain = await through_gateway(stub), await direct.first_token()
            differences.append((routed - plain) * 1e3)
        cuts = statistics.quantiles(differences[20:], n=100)
        return {"median_ms": cuts[49], "p90_ms": cuts[89], "p99_ms": cuts[98], "pairs": pairs}


async def throughput(gateway: str, pid: int, streams: int, tokens: int) -> dict[str, float]:
    """Messages per second of the gateway's CPU time with many streams at once."""

    async def read(stub: Any) -> tuple[int, int]:
        messages = received = 0
        async for response in stub.Generate(request(tokens)):
            messages += 1
            received += len(response.delta.token_ids)
        return messages, received

    async with connect(gateway) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        await read(stub)
        cpu, began = cpu_seconds(pid), time.perf_counter()
        counts = await asyncio.gather(*(read(stub) for _ in range(streams)))
        spent, wall = cpu_seconds(pid) - cpu, time.perf_counter() - began
    messages = sum(count for count, _ in counts)
    assert all(received == tokens for _, received in counts)
    return {
        "messages": messages,
        "cpu_s": spent,
        "wall_s": wall,
        "messages_per_cpu_s": messages / spent,
        "tokens_per_cpu_s": streams * tokens / spent,
    }


async def measure(pairs: int, streams: int, tokens: int) -> dict[str, Any]:
    """Both figures."""
    with ExitStack() as stack:
        folder = write_tokenizer(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        found: dict[str, Any] = {}
        for name, pace_s in (("overhead", 0.001), ("throughput", 0.01)):
            with ExitStack() as inner:
                _, target = inner.enter_context(process("tests.bench.gateway", "--serve-target", str(pace_s)))
                flags = ("--tokenizer", str(folder), "--targets", target, "--log-level", "error")
                pid, gateway = inner.enter_context(process("services.gateway", *flags))
                if name == "overhead":
                    found[name] = await overhead(target, gateway, pairs)
                else:
                    found[name] = await throughput(gateway, pid, streams, tokens)
        return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--serve-target", type=float, default=None)
    parser.add_argument("--slots", type=int, default=4096)
    arguments = parser.parse_args()
    if arguments.serve_target is not None:
        asyncio.run(serve_target(arguments.serve_target, arguments.slots))
        return
    found = asyncio.run(measure(arguments.pairs, arguments.streams, arguments.tokens))
    for name, figures in found.items():
        print(name, {key: round(value, 3) for key, value in figures.items()})
    print(json.dumps({"bench": "gateway", **found}))


if __name__ == "__main__":
    main()
