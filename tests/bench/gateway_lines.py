"""What lines of calls cost: `python -m tests.bench.gateway_lines`.

Two gateways over one fake target, one of them with `--access-log false`, serve the same bursts of short answers in
turns. The ratio is calls a second of CPU time with lines over that without: the median of the turns, and quartiles.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from tests.bench.gateway import process, request
from tests.support.fakes_tokenizer import write_tokenizer

SIDES = {"lines": (), "none": ("--access-log", "false")}
AT_ONCE = 64
WARM_UP = 3


def cpu_ns(pid: int) -> int:
    """Nanoseconds of CPU that the threads of a process have used so far."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


async def burst(stub: Any, pid: int, calls: int, tokens: int) -> float:
    """Microseconds of the gateway's CPU for a call, of so many calls, 64 at once."""

    async def one_after_another() -> None:
        for _ in range(calls // AT_ONCE):
            async for _ in stub.Generate(request(tokens)):
                pass

    before = cpu_ns(pid)
    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return (cpu_ns(pid) - before) / (calls // AT_ONCE * AT_ONCE) / 1e3


async def compare(sides: dict[str, tuple[int, str]], turns: int, calls: int, tokens: int) -> dict[str, float]:
    """Medians of both sides, and of the ratios of two bursts that follow one another."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    async with AsyncExitStack() as stack:
        stubs = {
            name: inference_pb2_grpc.InferenceServiceStub(await stack.enter_async_context(connect(address)))
            for name, (_, address) in sides.items()
        }
        for turn in range(turns + WARM_UP):
            for name in sorted(sides, reverse=bool(turn % 2)):
                found[name].append(await burst(stubs[name], sides[name][0], calls, tokens))
    on, off = found["lines"][WARM_UP:], found["none"][WARM_UP:]
    ratios = [without / those for those, without in zip(on, off, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "lines_us": statistics.median(on),
        "none_us": statistics.median(off),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--calls", type=int, default=512)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2])
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = write_tokenizer(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        _, target = stack.enter_context(process("tests.bench.gateway", "--serve-target", "0.001"))
        sink = stack.enter_context((folder / "lines").open("w"))
        sides = {
            name: stack.enter_context(
                process("services.gateway", "--tokenizer", str(folder), "--targets", target, *flags, stderr=sink)
            )
            for name, flags in SIDES.items()
        }
        for tokens in arguments.tokens:
            found = asyncio.run(compare(sides, arguments.turns, arguments.calls, tokens))
            print(json.dumps({"bench": "gateway_lines", "tokens": tokens, **found}))


if __name__ == "__main__":
    main()
