"""What lines of calls cost: `python -m tests.bench.gateway_lines`.

One gateway in this process serves bursts of short answers and writes lines for every second burst, so that both kinds
share the process, its memory and what else the machine does. The target and the client are processes of their own. The
ratio is calls a second of this process's CPU time with lines over that without: the median of the pairs of bursts, its
quartiles, and what its median may be off by.
"""

import argparse
import asyncio
import gc
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving import logs
from services.common.serving.channel import connect
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings
from tests.bench.gateway import process, request
from tests.support.fakes_tokenizer import write_tokenizer

AT_ONCE = 64
WARM_UP = 10


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


async def compare(
    app: GatewayApp, made: subprocess.Popen[str], tokens: int, pairs: int, calls: int
) -> dict[str, float]:
    """Medians of both kinds, and of the ratios of two bursts that follow one another."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs + WARM_UP):
        for lines in (True, False) if pair % 2 else (False, True):
            app._calls._lines = lines
            found[lines].append(await burst(made, tokens, calls))
    ratios = [off / on for on, off in zip(found[True][WARM_UP:], found[False][WARM_UP:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "lines_us": statistics.median(found[True][WARM_UP:]),
        "none_us": statistics.median(found[False][WARM_UP:]),
        "ratio": middle,
        "low": low,
        "high": high,
        "off_by": 1.253 * (high - low) / 1.349 / pairs**0.5,
    }


async def measure(folder: Path, target: str, arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    app = GatewayApp(GatewaySettings(tokenizer=str(folder), targets=(target,)))
    bound = await app.start()
    gc.freeze()
    with client(bound.grpc) as made:
        for tokens in arguments.tokens:
            found = await compare(app, made, tokens, arguments.pairs, arguments.calls)
            print(json.dumps({"bench": "gateway_lines", "tokens": tokens, **found}), flush=True)
        assert made.stdin is not None
        made.stdin.close()
    await app.drain()


def main() -> None:
    """Measures, or is the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--calls", type=int, default=2, help="of each of 64 streams in a burst")
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
