"""python -m tests.bench.ruled: tokens a second of ruled requests beside free ones, on the embedded pair.

Free and ruled loads alternate, single and four at a time, greedy and sampled; each ratio is the median over them. Under
`anything` the text is that of the free load, so that only the work of masks counts; `objects` is JSON that never ends,
whose rounds commit more or fewer tokens than those of the free text.
Ratios of CPU time, target and drafter together, hold on a machine that does other things too.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from tokenizers import Tokenizer

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars
from tests.integration.pair import PairProcesses
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

EMBEDDED = Path(__file__).parents[2] / "models" / "embedded"
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
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """Medians of one kind of load: ruled by free, in tokens a second and tokens a CPU second; tokens a round."""

    rule: str
    requests: int
    temperature: float
    free_tok_s: float
    ruled_tok_s: float
    ratio: float
    cpu_ratio: float
    free_tau: float
    ruled_tau: float


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


def frames(name: str, count: int, tokens: int, temperature: float, grammar: str) -> list[pb.Start]:
    """Requests with the same prompts and seeds, ruled or free."""
    tokenizer = Tokenizer.from_file(str(EMBEDDED / "target" / "tokenizer.json"))
    found = []
    for index in range(count):
        sampling = types.Sampling(temperature=temperature, seed=index + 1)
        ids = tokenizer.encode(PROMPTS[index % len(PROMPTS)]).ids
        frame = start(f"{name}-{index}", ids, tokens, sampling=sampling, tenant_salt=name.encode())
        frame.rule.grammar = grammar
        found.append(frame)
    return found


async def row(pair: PairProcesses, rule: str, grammar: str, shape: tuple[int, float], repeats: int, tokens: int) -> Row:
    """Loads in turns; the first of each is not counted."""
    requests, temperature = shape
    free: list[Taken] = []
    ruled: list[Taken] = []
    for repeat in range(repeats + 1):
        for held, found in (("", free), (grammar, ruled)):
            name = f"{rule}-{shape}-{repeat}-{bool(held)}"
            found.append(await taken(pair, frames(name, requests, tokens, temperature, held)))
    del free[0], ruled[0]
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
    )


def measured(repeats: int, tokens: int, shapes: Sequence[tuple[int, float]]) -> list[Row]:
    """Starts the pair and runs every kind of load."""
    text = (EMBEDDED / "target" / "tokenizer.json").read_text("utf-8")
    grammars = Grammars(text, 1024, (0,))
    rules = {name: grammars.rule(constraint).grammar for name, constraint in CONSTRAINTS.items()}
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        models = TinyPair(EMBEDDED / "target", EMBEDDED / "drafter")
        pair = PairProcesses(Path(folder), models, ["--context-limit", "512", "--slots", "4"])
        try:
            pair.wait_ready()
            kinds = product(rules.items(), shapes)
            return [asyncio.run(row(pair, *rule, shape, repeats, tokens)) for rule, shape in kinds]
        finally:
            pair.stop()


def main() -> int:
    """Prints a table and one line of JSON; 1 where the median of a rule's loads is below the bar."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ruled", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=192)
    chosen = parser.parse_args()
    rows = measured(chosen.repeats, chosen.tokens, [*product((1, 4), (0.0, 0.8))])
    names = list(asdict(rows[0]))
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for one in rows:
        print(f"| {' | '.join(map(str, asdict(one).values()))} |")
    middle = {rule: statistics.median(one.cpu_ratio for one in rows if one.rule == rule) for rule in CONSTRAINTS}
    print(json.dumps({"name": "ruled", "rows": [asdict(one) for one in rows], "cpu_ratios": middle, "bar": BAR}))
    return int(min(middle.values()) < BAR)


if __name__ == "__main__":
    sys.exit(main())
