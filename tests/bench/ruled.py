"""python -m tests.bench.ruled: tokens a second of ruled requests beside free ones, on the embedded pair.

Free and ruled loads alternate, single and four at a time, greedy and sampled; each ratio is the median over them. Under
`anything` the text is that of the free load, so that only the work of masks counts; `objects` is JSON that never ends,
whose rounds commit more or fewer tokens than those of the free text.
Ratios of CPU time, target and drafter together, hold on a machine that does other things too. On a GPU the pair shares
it by MPS and chooses its widths, and ratios are of tokens a second; --pair smollm2 is a real one, whose texts are
compared with those of plain decoding.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from deploy.shipped import SMOLLM2
from deploy.stack import EMBEDDED
from services.common.model.families import read_target_spec
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars
from tests.bench.gpu.mps import Mps
from tests.bench.nodes_offline import read_pair, tokens_of
from tests.integration.pair import PairProcesses
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

PROMPTS = (
    "def read_lines(path):\n    ",
    "class Stack:\n    def __init__(self):\n        ",
    "import json\n\n\ndef load(path):\n    ",
    "for index, value in enumerate(values):\n    ",
)
OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "value": {"type": "integer"}},
    "required": ["name", "value"],
    "additionalProperties": False,
}
CONSTRAINTS = {
    "anything": Constraint(Form.REGEX, r"(?s:.*)", "regex"),
    "objects": Constraint(Form.JSON, json.dumps({"type": "array", "items": OBJECT, "minItems": 2000}), "json"),
}
BAR = 0.8
GPU_FLAGS = ("--adaptive", "true", "--widths", "1,4,8,16", "--memory-bytes", str(6 << 30), "--compile-threads", "6")
READY_S = 240.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """Medians of one kind of load: ruled by free, in tokens a second and tokens a CPU second; tokens a round.

    Of its `texts`, `differ` are not what plain decoding says.
    """

    rule: str
    requests: int
    temperature: float
    free_tok_s: float
    ruled_tok_s: float
    ratio: float
    cpu_ratio: float
    free_tau: float
    ruled_tau: float
    free_ms: float
    ruled_ms: float
    texts: int
    differ: int


@dataclass(frozen=True)
class Taken:
    """What one load took."""

    wall_s: float
    cpu_s: float
    tokens: int
    rounds: int
    texts: tuple[tuple[int, ...], ...]


async def taken(pair: PairProcesses, frames: Sequence[pb.Start]) -> Taken:
    """Runs requests at once, to their end."""
    async with SessionClient(pair.bound["grpc"]) as client:
        began, spent = time.perf_counter(), cpu_s(pair)
        streams = [await client.start(frame) for frame in frames]
        for stream in streams:
            await stream.ended()
        wall, cpu = time.perf_counter() - began, cpu_s(pair) - spent
        rounds = sum(1 for one in client.rounds for update in one.updates if update.token_ids)
        return Taken(
            wall, cpu, sum(len(one.tokens) for one in streams), rounds, tuple(tuple(s.tokens) for s in streams)
        )


def cpu_s(pair: PairProcesses) -> float:
    """CPU seconds of both processes so far."""
    spent = 0
    for one in (pair.target, pair.drafter):
        fields = Path(f"/proc/{one.process.pid}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent * TICK_S


@dataclass(frozen=True)
class Bench:
    """A running pair, the tokens of its prompts, grammars by name, and what is asked."""

    pair: PairProcesses
    prompts: Sequence[Sequence[int]]
    grammars: Mapping[str, str]
    asked: argparse.Namespace


def frames(
    name: str, bench: Bench, count: int, temperature: float, grammar: str, drafts: types.Speculation | None = None
) -> list[pb.Start]:
    """Requests with the same prompts and seeds, ruled or free."""
    found = []
    for index in range(count):
        sampling = types.Sampling(temperature=temperature, seed=index + 1)
        ids = bench.prompts[index % len(bench.prompts)]
        frame = start(
            f"{name}-{index}", ids, bench.asked.tokens, sampling=sampling, tenant_salt=name.encode(), speculation=drafts
        )
        frame.rule.grammar = grammar
        found.append(frame)
    return found


async def row(bench: Bench, rule: str, requests: int, temperature: float) -> Row:
    """Loads in turns; the first of each are not counted."""
    asked, pair = bench.asked, bench.pair
    free: list[Taken] = []
    ruled: list[Taken] = []
    for repeat in range(asked.repeats + asked.warm):
        for held, found in (("", free), (bench.grammars[rule], ruled)):
            name = f"{rule}-{requests}-{temperature}-{repeat}-{bool(held)}"
            found.append(await taken(pair, frames(name, bench, requests, temperature, held)))
    plain = types.Speculation(off=True)
    name = f"{rule}-{requests}-{temperature}-plain"
    truth = await taken(pair, frames(name, bench, requests, temperature, bench.grammars[rule], plain))
    unlike = sum(text != true for one in ruled for text, true in zip(one.texts, truth.texts, strict=True))
    texts = sum(len(one.texts) for one in ruled)
    del free[: asked.warm], ruled[: asked.warm]
    assert rule != "anything" or {one.texts for one in free} == {one.texts for one in ruled}
    both = [*zip(free, ruled, strict=True)]
    return Row(
        rule,
        requests,
        temperature,
        round(statistics.median(one.tokens / one.wall_s for one in free), 1),
        round(statistics.median(one.tokens / one.wall_s for one in ruled), 1),
        round(statistics.median(b.tokens / b.wall_s * a.wall_s / a.tokens for a, b in both), 3),
        round(statistics.median(b.tokens / b.cpu_s * a.cpu_s / a.tokens for a, b in both), 3),
        round(sum(one.tokens for one in free) / sum(one.rounds for one in free), 2),
        round(sum(one.tokens for one in ruled) / sum(one.rounds for one in ruled), 2),
        round(statistics.median(one.wall_s / one.rounds * requests for one in free) * 1e3, 3),
        round(statistics.median(one.wall_s / one.rounds * requests for one in ruled) * 1e3, 3),
        texts,
        unlike,
    )


def measured(asked: argparse.Namespace, shapes: Sequence[tuple[int, float]]) -> tuple[list[Row], int]:
    """Starts the pair and runs every kind of load; returns the graphs captured after warm-up too."""
    target, drafter, prompts = models(asked.pair)
    text = (target / "tokenizer.json").read_text("utf-8")
    spec = read_target_spec(target)
    grammars = Grammars(text, spec.vocab_size, spec.eos_token_ids)
    rules = {name: grammars.rule(constraint).grammar for name, constraint in CONSTRAINTS.items() if name in asked.rules}
    gpu = asked.device == "cuda"
    device = ["--device", asked.device, "--dtype", "bfloat16" if gpu else "float32"]
    flags = [*device, "--context-limit", "1024", "--slots", "4", *(GPU_FLAGS if gpu else ())]
    ours = [*device, *(("--compile-threads", "6") if gpu else ())]
    with Mps(gpu) as shared, tempfile.TemporaryDirectory(prefix="pl-") as folder:
        os.environ.update(shared)
        pair = PairProcesses(Path(folder), TinyPair(target, drafter), flags, drafter_flags=ours)
        try:
            pair.wait_ready(READY_S)
            bench, before = Bench(pair, prompts, rules, asked), pair.describe().graphs.captures
            rows = []
            for rule, (requests, temperature) in product(rules, shapes):
                rows.append(asyncio.run(row(bench, rule, requests, temperature)))
                print(json.dumps(asdict(rows[-1])), flush=True)
            return rows, pair.describe().graphs.captures - before
        finally:
            pair.stop()


def models(name: str) -> tuple[Path, Path, list[list[int]]]:
    """The folders of a pair and the tokens of four prompts."""
    if name == SMOLLM2:
        pair = read_pair(name, 4)
        return pair.target, pair.drafter, pair.prompts
    folder = EMBEDDED / "target"
    return folder, EMBEDDED / "drafter", tokens_of(folder, PROMPTS)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ruled", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1, help="loads of each kind that are not counted")
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--pair", choices=("embedded", SMOLLM2), default="embedded")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rules", nargs="+", choices=CONSTRAINTS, default=[*CONSTRAINTS])
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    return parser.parse_args()


def main() -> int:
    """Prints a table and one line of JSON; 1 where the median of a rule's loads is below the bar."""
    asked = arguments()
    rows, captured = measured(asked, [*product(asked.requests, asked.temperatures)])
    names = list(asdict(rows[0]))
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for one in rows:
        print(f"| {' | '.join(map(str, asdict(one).values()))} |")
    gpu = asked.device == "cuda"  # its work shows in no process's time
    middle = {
        rule: statistics.median(one.ratio if gpu else one.cpu_ratio for one in rows if one.rule == rule)
        for rule in asked.rules
    }
    told = {"ratios": middle, "bar": BAR, "captured": captured}
    print(json.dumps({"name": "ruled", "rows": [asdict(one) for one in rows], **told}))
    return int(min(middle.values()) < BAR or captured > 0 or any(one.differ for one in rows))


if __name__ == "__main__":
    sys.exit(main())
