"""python -m tests.bench.gpu.neighbours: what rows that masks rule cost the rows beside them, a table last.

The pair is that of the race with random weights and forced acceptance. All rows sample, so that every round is of the
same mode. In turn none of the rows is ruled, one, half of them and all; rules name the tokens that may come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.load import Load, TimedClient, begin, frames_of
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.race.plan import SCHEDULES
from tests.bench.gpu.race.scale import FULL_SCALE, TINY_SCALE
from tests.bench.gpu.results import circumstances

BAR = 1.02


def main() -> int:
    """Runs the loads in turn and prints their rounds."""
    chosen = _arguments()
    scale = TINY_SCALE if chosen.tiny else FULL_SCALE
    settings = replace(scale.settings(chosen.memory_gb), slots=max(chosen.requests))
    rows = []
    with Mps(scale.on_gpu) as environment, tempfile.TemporaryDirectory(prefix="pl") as folder:
        options = PairOptions(environment=environment, drafter_weights="int8", short_blocks=True)
        with ServedPair(settings, Path(folder), options) as pair:
            for requests in chosen.requests:
                rows += asyncio.run(_compare(pair, requests, chosen.repeats, chosen.out))
            captures = pair.describe().graphs.captures - pair.captured
    told = {"bench": "neighbours", **circumstances("tiny" if chosen.tiny else "qwen3-4b", "tests.bench.gpu.neighbours")}
    print(json.dumps({**told, "captures_after_warm_up": captures, "rows": rows}))
    print(
        f"| requests | ruled | round, ms | of an unruled one | bar |\n| --- | --- | --- | --- | --- |\n{_table(rows)}"
    )
    return 0


async def _compare(pair: ServedPair, requests: int, repeats: int, out: int) -> list[dict[str, float]]:
    """Median rounds in which all rows decode, by how many are ruled, in turn."""
    kinds = sorted({0, 1, requests // 2, requests})
    rounds: dict[int, list[float]] = {ruled: [] for ruled in kinds}
    async with TimedClient(pair.address) as client:
        pair.switch(SCHEDULES["P65"])
        for turn in range(repeats + 1):
            for ruled in kinds:
                gaps = await _gaps(
                    client, pair, Load(requests, pair.settings.context_limit // 8, out, draws=turn), ruled
                )
                rounds[ruled] += gaps if turn else []  # the first turn warms up
    free = statistics.median(rounds[0])
    return [
        {"requests": requests, "ruled": ruled, "ms": round(1e3 * statistics.median(gaps), 3),
         "ratio": round(statistics.median(gaps) / free, 3)}
        for ruled, gaps in rounds.items()
    ]  # fmt: skip


async def _gaps(client: TimedClient, pair: ServedPair, load: Load, ruled: int) -> list[float]:
    frames = frames_of(load, pair.settings.shape.vocab)
    for index, frame in enumerate(frames):
        frame.sampling.MergeFrom(types.Sampling(temperature=0.8))
        if index < ruled:
            frame.rule.CopyFrom(_rule(pair.settings.shape.vocab))
    received = await begin(client, frames)
    await asyncio.gather(*(one.ended() for one in received))
    starts = max(next(n for n, a in enumerate(client.arrivals) if f.request_id in a.tokens) for f in frames)
    ends = next(n for n, arrival in enumerate(client.arrivals) if arrival.ended)
    return [later.at - earlier.at for earlier, later in pairwise(client.arrivals[starts:ends])]


def _rule(vocab: int) -> pb.Rule:
    """Every third token may come."""
    return pb.Rule(allowed=range(2, vocab, 3 * max(1, vocab // 1024)))


def _table(rows: list[dict[str, float]]) -> str:
    return "\n".join(
        f"| {row['requests']} | {row['ruled']} | {row['ms']} | {row['ratio']} | {BAR if row['ruled'] == 1 else ''} |"
        for row in rows
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=int, default=256, help="tokens of each request")
    parser.add_argument("--memory-gb", type=float, default=40.0)
    parser.add_argument("--tiny", action="store_true", help="so small that a CPU shows that all of it runs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
