"""python -m tests.bench.load: load against paceline on this machine, or against a gateway that runs already.

Without --gateway it starts one pair for adaptive and plain decoding and one for every fixed width, all from the
embedded checkpoints. Prints tables while it runs and one line of JSON last; writes JSON and a plot to --out.
"""

import argparse
import asyncio
import json
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.bench.load.client import LoadClient
from tests.bench.load.pairs import Mode, Pairs, modes
from tests.bench.load.plot import plot_curve
from tests.bench.load.scenarios import Budget, Sizes, curve, mixes, replay
from tests.bench.load.workload import Corpus

RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> int:
    """Runs the chosen scenarios; 0 when no request failed."""
    chosen = arguments(sys.argv[1:])
    sizes = Sizes(
        concurrencies=tuple(chosen.concurrency),
        alternations=chosen.alternations,
        tokens=chosen.tokens,
        rate=chosen.rate,
    )
    # A plain end would leave the pairs running: they are in sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = perf_counter()

    def say(line: str) -> None:
        print(f"[{perf_counter() - begun:6.1f} s] {line}", flush=True)

    if chosen.gateway:
        wanted = [Mode("plain", "given", speculate=False), Mode("adaptive", "given")]
        result = asyncio.run(measure({"given": chosen.gateway}, wanted, sizes, chosen.scenario, chosen.seconds, say))
    else:
        wanted = modes(chosen.widths)
        with Pairs(wanted, max(chosen.concurrency), say) as pairs:
            result = asyncio.run(measure(pairs.addresses, wanted, sizes, chosen.scenario, chosen.seconds, say))
    return report(result, chosen.out, perf_counter() - begun)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Flags of the command."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--gateway", default="", help="address of a running gateway; default: start pairs")
    parser.add_argument("--scenario", nargs="*", default=["curve", "mixes", "replay"], help="which to run")
    parser.add_argument("--concurrency", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--widths", nargs="*", type=int, default=[1, 4, 8])
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96, help="output tokens of a stream of the curve")
    parser.add_argument("--rate", type=float, default=3.0, help="requests a second of the open loop")
    parser.add_argument("--seconds", type=float, default=200.0, help="time to measure; a slow machine measures less")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(words)


async def measure(
    addresses: dict[str, str],
    wanted: Sequence[Mode],
    sizes: Sizes,
    scenarios: Sequence[str],
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Everything that was asked for, by scenario."""
    async with AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(LoadClient(address)) for name, address in addresses.items()}
        infos = [await client.model() for client in clients.values()]
        adaptive = clients[wanted[-1].pair]
        corpus = await Corpus.read(adaptive)
        say("ready")
        budget = Budget(seconds)
        result: dict[str, Any] = {"model": infos[0].name, "revision": infos[0].revision, "seed": sizes.seed}
        if "curve" in scenarios:
            result["curve"] = await curve(clients, wanted, corpus, sizes, budget, say)
            table(result["curve"], ("concurrency", "mode", "tok_s", "ratio", "ratio_low", "ratio_high", "tau"))
        if "mixes" in scenarios:
            result["mixes"] = await mixes(adaptive, corpus, sizes, budget, say)
            table(result["mixes"], ("loop", "mix", "tok_s", "ttft_ms_p50", "ttft_ms_p99", "gap_ms_p99", "good_share"))
        if "replay" in scenarios:
            result["replay"] = await replay(adaptive, corpus, sizes, say)
            table(result["replay"], ("turn", "prompt_tokens", "cached_tokens", "prefill_ms", "decode_ms", "wall_ms"))
    return result


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Prints rows under their column names."""
    cells = [list(columns), *([str(row.get(column, "")) for column in columns] for row in rows)]
    sizes = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(size) for cell, size in zip(line, sizes, strict=True)), flush=True)


def report(result: dict[str, Any], out: Path, run_s: float) -> int:
    """Writes the files and the last line."""
    out.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC)
    result |= {
        "bench": "load",
        "when": stamp.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {"cpus": cpu_count(), "processor": platform.machine(), "python": platform.python_version()},
        "run_s": round(run_s, 1),
    }
    path = out / f"load_cpu_{stamp:%Y%m%d_%H%M%S}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    plotted = plot_curve(result["curve"], path.with_suffix(".png")) if "curve" in result else False
    adaptive = {str(row["concurrency"]): row["ratio"] for row in result.get("curve", ()) if row["mode"] == "adaptive"}
    failed = sum(row["errors"] for key in ("curve", "mixes") for row in result.get(key, ()))
    failed += sum(bool(row["error"]) for row in result.get("replay", ()))
    line = {"bench": "load", "errors": failed, "adaptive_against_best": adaptive, "run_s": result["run_s"]}
    print(json.dumps(line | {"json": path.name, "png": path.with_suffix(".png").name if plotted else None}))
    return 0 if failed == 0 else 1


def commit() -> str:
    """The commit that was measured, or nothing outside a checkout."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
