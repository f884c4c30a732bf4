"""What lines of calls cost: `python -m tests.bench.gateway_lines`.

One gateway in this process serves bursts of short answers and writes lines for every second burst, so that both kinds
share the process, its memory and what else the machine does. The target and the client are processes of their own.
Four bursts are a block: with, without, without, with, or the other way round, so that a machine that becomes slower
meanwhile favours neither. The ratio is calls a second of this process's CPU time with lines over that without: the
median of blocks, and the interval in which 95 of 100 medians of blocks drawn anew lie. With `--control` no burst has
lines, and the ratio says what the method itself is off by.
"""

import argparse
import asyncio
import gc
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving import logs
from services.common.serving.channel import connect
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings
from tests.bench.gateway import process, request
from tests.support.fakes_tokenizer import write_tokenizer

AT_ONCE = 64
WARM_UP = 5
DRAWN = 2_000

Found = dict[str, float | tuple[float, float]]


async def serve_bursts(address: str) -> None:
    """The client's process: for each line of stdin, which says tokens and calls of each stream, 64 streams at once."""
    async with connect(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        async def one_after_another(tokens: int, calls: int) -> None:
            for _ in range(calls):
                async for _ in stub.Generate(request(tokens)):  # type: ignore[attr-defined]
                    pass

        while line := await asyncio.to_thread(sys.stdin.readline):
            tokens, calls = map(int, line.split())
            await asyncio.gather(*(one_after_another(tokens, calls) for _ in range(AT_ONCE)))
            print("done", flush=True)


@contextmanager
def client(address: str) -> Iterator[subprocess.Popen[str]]:
    """A client of the gateway, ended by the end of its input."""
    command = [sys.executable, "-m", "tests.bench.gateway_lines", "--client", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        yield made


async def burst(made: subprocess.Popen[str], tokens: int, calls: int) -> float:
    """Microseconds of this process's CPU for a call."""
    assert made.stdin is not None
    assert made.stdout is not None
    before = time.process_time_ns()
    made.stdin.write(f"{tokens} {calls}\n")
    made.stdin.flush()
    await asyncio.to_thread(made.stdout.readline)
    logging.getLogger().handlers[0].flush()  # else the next burst would write the last lines of this one
    return (time.process_time_ns() - before) / (calls * AT_ONCE) / 1e3


@dataclass(frozen=True)
class Blocks:
    """What runs them; with `control` no burst has lines."""

    app: GatewayApp
    client: subprocess.Popen[str]
    control: bool

    async def one(self, order: tuple[bool, ...], tokens: int, calls: int) -> float:
        """CPU of the bursts without lines over that of those with them."""
        took = {True: 0.0, False: 0.0}
        for lines in order:
            self.app._calls._lines = lines and not self.control
            took[lines] += await burst(self.client, tokens, calls)
        return took[False] / took[True]

    async def many(self, count: int, tokens: int, calls: int) -> Found:
        """All ratios as one."""
        ratios = []
        for number in range(count + WARM_UP):
            order = (True, False, False, True) if number % 2 else (False, True, True, False)
            ratios.append(await self.one(order, tokens, calls))
        return found(ratios[WARM_UP:])


def found(ratios: list[float]) -> Found:
    """The median, and the interval of 95 % of medians of as many that are drawn from them."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(DRAWN))
    low, middle, high = statistics.quantiles(ratios, n=4)
    interval = {"from": medians[DRAWN // 40], "to": medians[-DRAWN // 40]}
    return {"blocks": len(ratios), "ratio": middle, **interval, "quartiles": (low, high)}


async def measure(folder: Path, target: str, arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    app = GatewayApp(GatewaySettings(tokenizer=str(folder), targets=(target,)))
    bound = await app.start()
    gc.freeze()
    with client(bound.grpc) as made:
        for tokens in arguments.tokens:
            blocks = Blocks(app, made, arguments.control)
            ratio = await blocks.many(arguments.blocks, tokens, arguments.calls)
            print(json.dumps({"bench": "gateway_lines", "tokens": tokens, **ratio}), flush=True)
        assert made.stdin is not None
        made.stdin.close()
    await app.drain()


def main() -> None:
    """Measures, or is the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200, help="of four bursts")
    parser.add_argument("--calls", type=int, default=1, help="of each of 64 streams in a burst")
    parser.add_argument("--control", action="store_true", help="no burst has lines")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2, 32])
    parser.add_argument("--client", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        asyncio.run(serve_bursts(arguments.client))
        return
    with ExitStack() as stack:
        folder = write_tokenizer(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        _, target = stack.enter_context(process("tests.bench.gateway", "--serve-target", "0.001"))
        logs.configure("gateway", stream=stack.enter_context((folder / "lines").open("w")))
        asyncio.run(measure(folder, target, arguments))


if __name__ == "__main__":
    main()
