"""python -m tests.bench.gpu.parts --requests 8 32 64: parts of served rounds, a table, and JSON with --save.

The pair is that of the race, under MPS, with random weights and forced acceptance. Each stamp is a launch, so these
rounds take longer than others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.bench.gpu.load import Load, TimedClient, run
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.parts.stamps import FOLDER, read
from tests.bench.gpu.parts.table import rounds_of, rows_of, table
from tests.bench.gpu.race.plan import PROMPT, SCHEDULES
from tests.bench.gpu.race.scale import FULL_SCALE, TINY_SCALE
from tests.bench.gpu.results import circumstances
from tests.bench.gpu.shapes import SHAPES
from tests.bench.race import FIRST_SHAPE

TARGET, DRAFTER = "tests.bench.gpu.parts.target", "tests.bench.gpu.parts.drafter"


def main() -> int:
    """Runs the loads, then reads what both processes left."""
    chosen = _arguments()
    scale = TINY_SCALE if chosen.tiny else FULL_SCALE
    slots = max(chosen.requests)
    shape = "tiny" if chosen.tiny else chosen.shape
    settings = replace(scale.settings(chosen.memory_gb), slots=slots, shape=SHAPES[shape])
    with Mps(scale.on_gpu) as environment, tempfile.TemporaryDirectory(prefix="pl") as folder:
        options = PairOptions(
            environment={**environment, FOLDER: folder}, drafter_weights=chosen.drafter_weights,
            short_blocks=not chosen.whole_blocks, target=TARGET, drafter=DRAFTER,
        )  # fmt: skip
        with ServedPair(settings, Path(folder), options) as pair:
            described = pair.describe()
            print(f"hand-off {described.handoff_mode}, {described.exactness}")
            asyncio.run(_loads(pair, chosen.requests, chosen.repeats, chosen.out))
        rows = rows_of(rounds_of(read(Path(folder))))
    told = {"bench": "parts", **circumstances(shape, "tests.bench.gpu.parts"), "rows": rows}
    if chosen.save:
        (Path(chosen.save) / "gpu_parts.json").write_text(json.dumps(told, indent=1) + "\n")
    print(table(rows), json.dumps(told), sep="\n")
    return 0


async def _loads(pair: ServedPair, requests: list[int], repeats: int, out: int) -> None:
    vocab, prompt = pair.settings.shape.vocab, min(PROMPT, pair.settings.context_limit // 4)
    async with TimedClient(pair.address) as client:
        pair.switch(SCHEDULES["P65"])
        for concurrency in requests:
            for _ in range(repeats):
                await run(client, Load(concurrency, prompt, out), vocab)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default=FIRST_SHAPE, help="of the model")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=int, default=512, help="tokens of each request")
    parser.add_argument("--drafter-weights", choices=("dtype", "int8"), default="int8")
    parser.add_argument("--whole-blocks", action="store_true", help="drafts as the services make them without a flag")
    parser.add_argument("--memory-gb", type=float, default=56.0)
    parser.add_argument("--tiny", action="store_true", help="so small that a CPU shows that all of it runs")
    parser.add_argument("--save", default="")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
