"""python -m tests.bench.gpu.ruled: what one ruled request costs those beside it, in rounds of a full batch.

Full loads of free requests alternate with loads of which one request is held to a grammar at each of its tokens. All
requests sample, so that every round processes scores, and the pair shares the GPU by MPS. A round takes from the commit
before it to its own. Graphs captured after warm-up are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars
from tests.bench.gpu import timeline
from tests.bench.gpu.load import random_prompt
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import QWEN3_4B, TINY
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import write_tokenizer

LONG_LIST = {"type": "array", "items": {"type": "integer"}, "minItems": 4000}
"""It never ends by itself, and masks every token."""
BANDWIDTH = 4.3e12
TEMPERATURE = 0.8
SLOWER = 1.02
"""A round beside a ruled request may be so much slower."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pair, and its loads: `requests` at a time of `tokens` each."""

    rig: RigSettings
    requests: int
    tokens: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Milliseconds of a full round, free and beside a ruled request, and graphs captured after warm-up."""

    free_ms: float
    ruled_ms: float
    ratio: float
    rounds: int
    captured: int
    floor_ms: float


def sizes(tiny: bool) -> Shape:
    """On a GPU the shape of Qwen3-4B, eight requests; a tiny one on a CPU."""
    if tiny:
        return Shape(RigSettings(TINY, "cpu", "float32", 4, (1, 4), 1024, 1 << 28, 256), 4, 48, 2)
    return Shape(RigSettings(QWEN3_4B, "cuda", "bfloat16", 8, (1, 8), 2048, 16 << 30), 8, 400, 5)


def measured(shape: Shape, folder: Path) -> Outcome:
    """Starts the pair, runs its loads in turns, and stops it."""
    model, notes = folder / "models" / "target", folder / "rounds.jsonl"
    model.mkdir(parents=True)
    write_tokenizer(model, shape.rig.shape.vocab)
    notes.touch()
    grammars = Grammars((model / "tokenizer.json").read_text("utf-8"), shape.rig.shape.vocab, (0,))
    rule = grammars.rule(Constraint(Form.JSON, json.dumps(LONG_LIST), "list")).grammar
    with (
        Mps(shape.rig.device == "cuda") as environment,
        ServedPair(shape.rig, folder, PairOptions(environment={**environment, timeline.VARIABLE: str(notes)})) as pair,
    ):
        pair.switch("P65")
        asyncio.run(_load(pair, shape, rule, "warm"))
        before = pair.describe().graphs
        free: list[float] = []
        ruled: list[float] = []
        rounds = 0
        for repeat in range(shape.repeats):
            for held, found in (("", free), (rule, ruled)):
                known = len(timeline.read(notes))
                asyncio.run(_load(pair, shape, held, f"{repeat}-{bool(held)}"))
                took = full_rounds(timeline.read(notes)[known:], shape)
                found.append(statistics.median(took))
                rounds += len(took)
        after = pair.describe().graphs
    captured = sum(getattr(after, one) - getattr(before, one) for one in ("captures", "recaptures", "reallocations"))
    ratio = statistics.median(two / one for one, two in zip(free, ruled, strict=True))
    middle = [round(statistics.median(found), 3) for found in (free, ruled)]
    return Outcome(middle[0], middle[1], round(ratio, 3), rounds, captured, round(floor_ms(shape), 3))


async def _load(pair: ServedPair, shape: Shape, rule: str, name: str) -> None:
    """Runs one load to its end; its first request follows the rule."""
    async with SessionClient(pair.address) as client:
        streams = [
            await client.start(frame(f"{name}-{index}", shape, rule if index == 0 else "", pair))
            for index in range(shape.requests)
        ]
        for stream in streams:
            await stream.ended()
            assert len(stream.tokens) == shape.tokens


def frame(name: str, shape: Shape, rule: str, pair: ServedPair) -> pb.Start:
    """One request that drafts as wide as the pair can."""
    drafts = types.Speculation(max_draft=shape.rig.widths[-1] - 1)
    ids = random_prompt(sum(name.encode()), 64, pair.settings.shape.vocab)
    # Synthetic acceptance draws by the seed.
    sampling = types.Sampling(temperature=TEMPERATURE, seed=sum(name.encode()))
    made = start(name, ids, shape.tokens, sampling=sampling, speculation=drafts, tenant_salt=name.encode())
    if rule:
        made.rule.grammar = rule
    return made


def full_rounds(rounds: Sequence[dict[str, Any]], shape: Shape) -> list[float]:
    """Milliseconds of rounds in which all requests decode by drafts, one directly behind another."""

    def full(one: dict[str, Any]) -> bool:
        wide = one["requests"] == shape.requests and one["width"] == shape.rig.widths[-1]
        return wide and not one["prefilled"] and not one["fallback"]

    return [(one["ended"] - before["ended"]) * 1e3 for before, one in pairwise(rounds) if full(before) and full(one)]


def floor_ms(shape: Shape) -> float:
    """The time in which the target's weights are read once."""
    made = shape.rig.shape
    attention = made.hidden * made.head_dim * (2 * made.heads + 2 * made.kv_heads)
    weights = made.layers * (attention + 3 * made.hidden * made.inner) + made.vocab * made.hidden
    return weights * 2 / BANDWIDTH * 1e3


def main() -> int:
    """Prints a table and one line of JSON; 1 where a bar is not held."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.ruled", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a tiny pair on a CPU, whose times say nothing")
    shape = sizes(parser.parse_args().tiny)
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        found = measured(shape, Path(folder))
    print(f"| requests | free ms | beside a ruled one ms | ratio | captured | floor ms |\n|{'---|' * 6}")
    print(
        f"| {shape.requests} | {found.free_ms} | {found.ruled_ms} | {found.ratio} | {found.captured} |"
        f" {found.floor_ms} |"
    )
    print(json.dumps({"name": "ruled", **asdict(found), "bar": SLOWER}))
    return int(found.captured > 0 or found.ratio > SLOWER)


if __name__ == "__main__":
    sys.exit(main())
