"""Open-loop overload at three times the capacity: `python -m tests.bench.overload`.

Requests arrive at random times whatever became of the earlier ones. Rejects must be about as fast as a health call of
the same run, and the requests that get in must use the capacity. Fake target, gateway and load generator are processes
of their own. The last line is JSON.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from tests.bench.gateway import process, request
from tests.support.fakes_tokenizer import write_tokenizer

SLOTS, PACE_S, TOKENS = 8, 0.02, 64
ALLOWED_MS = 50.0
ENOUGH = 2


async def capacity(gateway: str, seconds: float) -> float:
    """Requests per second with every slot always taken."""
    done = 0

    async def loop(stub: Any, until: float) -> None:
        nonlocal done
        while time.monotonic() < until:
            async for _ in stub.Generate(request(TOKENS)):
                pass
            done += 1

    async with connect(gateway) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        began = time.monotonic()
        await asyncio.gather(*(loop(stub, began + seconds) for _ in range(SLOTS)))
        return done / (time.monotonic() - began)


class Arrivals:
    """One open-loop run; times are milliseconds."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self.rejects: list[float] = []
        self.probes: list[float] = []
        self.others: list[str] = []
        self.served = 0
        self.last = 0.0

    async def run(self, rate: float, seconds: float, seed: int) -> None:
        """Sends until the time is over, then waits for the answers."""
        numbers, tasks = random.Random(seed), []
        began = due = time.monotonic()
        while (due := due + numbers.expovariate(rate)) < began + seconds:
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            tasks.append(asyncio.create_task(self._ask()))
            if len(tasks) % 3 == 0:
                tasks.append(asyncio.create_task(self._probe()))
        await asyncio.gather(*tasks)

    async def _ask(self) -> None:
        began = time.perf_counter()
        try:
            async for _ in self._stub.Generate(request(TOKENS), timeout=60.0):
                pass
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self.rejects.append((time.perf_counter() - began) * 1e3)
            else:
                self.others.append(error.code().name)
            return
        self.served += 1
        self.last = time.monotonic()

    async def _probe(self) -> None:
        began = time.perf_counter()
        await self._health.Check(health_pb2.HealthCheckRequest(), timeout=60.0)
        self.probes.append((time.perf_counter() - began) * 1e3)


async def generate(gateway: str, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """The load generator's process."""
    async with connect(gateway) as channel:
        arrivals, began = Arrivals(channel), time.monotonic()
        await arrivals.run(rate, seconds, seed)
    return {
        "served": arrivals.served,
        "rejected": len(arrivals.rejects),
        "others": arrivals.others,
        "goodput": arrivals.served / (arrivals.last - began),
        "reject_p99_ms": percentile(arrivals.rejects),
        "health_p99_ms": percentile(arrivals.probes),
    }


def percentile(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def one_run(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Capacity first, then three times as much."""
    with process("tests.bench.gateway", "--serve-target", str(PACE_S), "--slots", str(SLOTS)) as (_, target):
        bounds = ("--max-requests", str(2 * SLOTS), "--log-level", "error")
        flags = ("--tokenizer", str(folder), "--targets", target, *bounds)
        with process("services.gateway", *flags) as (_, gateway):
            most = asyncio.run(capacity(gateway, max(seconds / 6, 3.0)))
            command = [sys.executable, "-m", "tests.bench.overload", "--generate", gateway]
            command += ["--rate", str(3 * most), "--seconds", str(seconds), "--seed", str(seed)]
            found: dict[str, Any] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
    found |= {"capacity": most, "share": found["goodput"] / most}
    fast = found["reject_p99_ms"] <= found["health_p99_ms"] + ALLOWED_MS
    return found | {"passed": fast and found["share"] >= 0.9 and not found["others"]}


def main() -> int:
    """Runs until two runs have passed, at most three times. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--generate", default="")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.generate:
        found = asyncio.run(generate(arguments.generate, arguments.rate, arguments.seconds, arguments.seed))
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = write_tokenizer(Path(name))
        runs: list[dict[str, Any]] = []
        while len(runs) < arguments.runs and sum(run["passed"] for run in runs) < ENOUGH:
            runs.append(one_run(folder, arguments.seconds, seed=len(runs)))
    for run in runs:
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in run.items()})
    passed = sum(run["passed"] for run in runs)
    print(json.dumps({"bench": "overload", "passed": passed, "runs": runs}))
    return 0 if passed >= min(ENOUGH, arguments.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
