"""python -m tests.bench.gpu.nodes: a target that may check trees beside chains against one of chains, both running.

Both choose their widths up to `--rows`, after loads of the same size. Each line of JSON is one number of rows, one
temperature and one number of streams; `differ` counts texts that are not what plain decoding says. A table is printed
last. With `--by-pace` a third pair of chains is asked for rounds over gRPC, as one that does not reach the side socket.
`--part kernels` times choosing nodes and attention instead, `--part verify` a verify of shapes with random
weights, too, and `--part rounds` verifies, drafts and what trees add to them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from deploy.stack import EMBEDDED
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.nodes_rounds import round_lines
from tests.bench.gpu.nodes_verify import attention_lines, choice_lines, verify_lines
from tests.bench.gpu.rounds_told import times_of_rounds
from tests.integration.pair import PairProcesses
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

ROWS, TEMPERATURES, STREAMS = (8, 16), (0.0, 0.8), (1, 8, 32)
WIDTHS = (1, 4, 8, 16, 32)
READY_S = 240.0
COMPILE_THREADS = 6
OUT_OF_REACH = "p" * 90
"""Too long a name of a folder for a Unix socket."""
MEMORY = 30 << 30
"""Bytes of each target: several are up at once. Of much less the graphs of trees would take too large a part."""


@dataclass(frozen=True)
class Line:
    """Tokens a round with a bonus each; the ratio of tokens a second; texts, how many are not what plain decoding says.

    `error_nodes` is the standard error of `tau_nodes` over the seeds of each prompt, 0 where each has one.
    `captured` counts graphs that were captured after warm-up, `share` is that of trees among the latest rounds.
    """

    pair: str
    rows: int
    temperature: float
    streams: int
    tau_chain: float
    tau_nodes: float
    error_nodes: float
    tokens_per_s_chain: float
    tokens_per_s_nodes: float
    tokens_ratio: float
    texts: int
    differ: int
    captured: int
    share: float
    tokens_per_s_by_pace: float = 0.0


@dataclass(frozen=True)
class Pair:
    """A target, its drafter, and tokens of prompts to answer."""

    name: str
    target: Path
    drafter: Path
    prompts: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Told:
    """The texts of some requests, the rounds and accepted drafts of each, and the seconds that all took together."""

    texts: list[list[int]]
    rounds: list[int]
    accepted: list[int]
    seconds: float

    @property
    def tau(self) -> float:
        """Tokens a round: accepted drafts, an end of a text among them, and the target's own."""
        return round(self._tokens_a_round, 3)

    @property
    def tokens(self) -> int:
        """Those of all texts."""
        return sum(map(len, self.texts))

    @property
    def speed(self) -> float:
        """Tokens a second of all together."""
        return round(self.tokens / self.seconds, 1)

    def error(self, prompts: int) -> float:
        """Return tau's standard error over the seeds of each prompt; request i answers prompt i modulo their number."""
        counted = zip(self.rounds, self.accepted, strict=True)
        off = [accepted + rounds - self._tokens_a_round * rounds for rounds, accepted in counted]
        by_prompt = [off[first::prompts] for first in range(prompts)]
        squares = sum(len(each) * statistics.variance(each) for each in by_prompt if len(each) > 1)
        return round(math.sqrt(squares) / max(sum(self.rounds), 1), 4)

    @property
    def _tokens_a_round(self) -> float:
        rounds = sum(self.rounds)
        return (sum(self.accepted) + rounds) / max(rounds, 1)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line, or what is given, says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.nodes", description=__doc__)
    parser.add_argument("--part", choices=("served", "verify", "kernels", "rounds"), default="served")
    parser.add_argument("--pair", nargs="+", default=["embedded"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--warm", type=int, default=1, help="loads before those that count")
    parser.add_argument("--repeats", type=int, default=1, help="loads that count, of each way in turn")
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    parser.add_argument("--seeds", type=int, default=1, help="answers to each prompt at least, each drawn anew")
    parser.add_argument("--rounds-of-requests", type=int, default=1, help="requests of a load by those at once")
    parser.add_argument("--by-pace", action="store_true")
    parser.add_argument("--fixed", action="store_true", help="all rounds with the most rows")
    parser.add_argument("--drafter", type=Path, help="another one of the pair's target")
    parser.add_argument("--ends", action="store_true", help="answers end where the model ends them, as users have them")
    parser.add_argument("--prompts", type=int, default=16, help="most of the held-out ones")
    parser.add_argument("--shape", nargs="+", default=["qwen3-4b"], help="of --part verify and rounds")
    parser.add_argument("--tiny", action="store_true", help="little of everything, to see that it runs")
    asked = parser.parse_args(given)
    if asked.tiny:
        asked.rows, asked.streams, asked.tokens, asked.shape = [8], [1, 2], 12, ["tiny"]
    return asked


def main() -> int:
    """Measures what was asked for; returns 1 where a text differs."""
    asked = arguments()
    if asked.part == "rounds":
        for line in chain.from_iterable(round_lines(name, asked.device, asked.streams) for name in asked.shape):
            print(line, flush=True)
        return 0
    if asked.part != "served":
        more = verify_lines(asked.shape, asked.rows, asked.device) if asked.part == "verify" else ()
        for line in chain(choice_lines(asked.device), attention_lines(asked.device), more):
            print(line, flush=True)
        return 0
    with Mps(asked.device == "cuda") as shared:
        os.environ.update(shared)  # four processes would else take turns by slices of 2 ms
        lines = [line for name in asked.pair for line in served(name, asked)]
    print(table(lines))
    return int(any(line.differ or line.captured for line in lines))


def served(name: str, asked: argparse.Namespace) -> Iterator[Line]:
    """Yield a line for each number of rows, temperature and streams of one pair, and print it."""
    pair = _pair(name, asked.prompts)
    pair = replace(pair, drafter=asked.drafter or pair.drafter)
    for rows in asked.rows:
        # Chains are as long as the drafter's block at most.
        chains = ["--widths", ",".join(str(width) for width in WIDTHS if width <= rows)]
        chains += ["--adaptive", str(not asked.fixed).lower()]
        nodes = [*chains, "--nodes", "true"]
        with tempfile.TemporaryDirectory(prefix="pl") as folder:
            by_pace = ["--pair-id", OUT_OF_REACH, "--grpc", f"unix:{folder}/t.sock"]
            far = [*chains, *(by_pace if asked.device == "cuda" else ("--handoff", "host"))]
            ways = (("c", chains), ("n", nodes), ("p", far))[: 2 + asked.by_pace]
            pairs: list[PairProcesses] = []
            try:
                for way, flags in ways:  # one behind another: each times its rounds, and policies begin with that
                    pairs.append(_started(Path(folder) / way, pair, flags, asked))
                    pairs[-1].wait_ready(READY_S)
                for line in asyncio.run(_measured(pair, rows, pairs, asked)):
                    print(json.dumps(asdict(line)), flush=True)
                    yield line
            finally:
                for one in pairs:
                    one.stop()


def _pair(name: str, prompts: int) -> Pair:
    """Return a pair with so many held-out prompts; only SmolLM2's needs a chat template."""
    if name != "embedded":
        from tests.bench.nodes_offline import read_pair

        found = read_pair(name, prompts)
        return Pair(name, found.target, found.drafter, found.prompts)
    from tokenizers import Tokenizer

    texts = json.loads((EMBEDDED / "heldout_prompts.json").read_text("utf-8"))[:prompts]
    encode = Tokenizer.from_file(str(EMBEDDED / "target" / "tokenizer.json")).encode_batch
    return Pair(name, EMBEDDED / "target", EMBEDDED / "drafter", [one.ids for one in encode(texts)])


def _started(folder: Path, pair: Pair, flags: Sequence[str], asked: argparse.Namespace) -> PairProcesses:
    folder.mkdir(mode=0o700)
    device = ["--device", asked.device, "--dtype", "bfloat16" if asked.device == "cuda" else "float32"]
    target = [*device, *flags, "--slots", str(max(asked.streams))]
    drafter = list(device)
    if asked.device == "cuda":
        drafter += ["--compile-threads", str(COMPILE_THREADS)]
        target += ["--memory-bytes", str(MEMORY), "--compile-threads", str(COMPILE_THREADS)]
    return PairProcesses(folder, TinyPair(pair.target, pair.drafter), target, drafter_flags=drafter)


async def _measured(pair: Pair, rows: int, pairs: Sequence[PairProcesses], asked: argparse.Namespace) -> list[Line]:
    lines, before = [], [one.describe().graphs for one in pairs]
    for streams in asked.streams:
        for temperature in asked.temperatures:
            load = partial(_told, pair, streams, temperature, asked)
            plain = await load(pairs[0], False)
            every: list[list[Told]] = [[] for _ in pairs]
            for turn in range(asked.warm + asked.repeats):  # it learns what rounds bring
                for one, told in zip(pairs, every, strict=True):
                    told.append(await load(one, True, turn))
            chain, nodes, *by_pace = (together(told[asked.warm :]) for told in every)
            after = [one.describe().graphs for one in pairs]
            captured = sum(new.captures - old.captures for new, old in zip(after, before, strict=True))
            unlike = zip(plain.texts, *(told.texts for of_way in every for told in of_way), strict=True)
            differ = sum(any(text != first for text in texts) for first, *texts in unlike)
            lines.append(
                Line(
                    pair.name, rows, temperature, streams, chain.tau, nodes.tau, every[1][-1].error(len(pair.prompts)),
                    chain.speed, nodes.speed, round(nodes.speed / chain.speed, 3), len(plain.texts), differ, captured,
                    _share(pairs[1]), by_pace[0].speed if by_pace else 0.0,
                )
            )  # fmt: skip
            _note(f"{pair.name}, {rows} rows, {streams} streams, T {temperature}: {differ} differ")
            for one in pairs:
                _note(times_of_rounds(one, streams))
    return lines


def _share(pair: PairProcesses) -> float:
    """Rounds of trees among the latest ones with drafts."""
    kinds = [one.nodes for one in pair.describe().rounds if one.width > 1]
    return round(sum(kinds) / max(1, len(kinds)), 2)


async def _told(
    pair: Pair, streams: int, temperature: float, asked: argparse.Namespace, one: PairProcesses, drafts: bool,
    turn: int = 0,
) -> Told:  # fmt: skip
    """Let so many requests run at once, each prompt at least once in all, and each with a seed of its own."""
    tokens, count = asked.tokens, max(streams * asked.rounds_of_requests, asked.seeds * len(pair.prompts))
    limit, writing = asyncio.Semaphore(streams), asyncio.Lock()
    mark = f"{tokens}-{temperature}-{streams}-{turn}-{time.monotonic_ns()}"

    async def answer(client: SessionClient, index: int) -> tuple[list[int], int, int]:
        prompt = pair.prompts[index % len(pair.prompts)]
        sampling = types.Sampling(temperature=temperature, seed=index)
        frame = start(
            f"{mark}-{index}", prompt, tokens, sampling=sampling, speculation=types.Speculation(off=not drafts)
        )
        frame.stopping.ignore_eos = not asked.ends
        async with limit:
            async with writing:
                stream = await client.start(frame)
            end = await stream.ended()
        return stream.tokens, int(end.speculation.rounds), int(end.speculation.accepted)

    async with SessionClient(one.bound["grpc"]) as client:
        began = time.perf_counter()
        found = await asyncio.gather(*(answer(client, index) for index in range(count)))
        took = time.perf_counter() - began
    texts, rounds, accepted = (list(each) for each in zip(*found, strict=True))
    return Told(texts, rounds, accepted, took)


def together(loads: Sequence[Told]) -> Told:
    """Return several loads of one way as one."""
    texts, rounds, accepted = (
        [each for one in loads for each in getattr(one, name)] for name in ("texts", "rounds", "accepted")
    )
    return Told(texts, rounds, accepted, sum(one.seconds for one in loads))


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a short table."""
    head = f"{'pair':10} {'rows':>4} {'T':>4} {'c':>3} {'tau':>6} {'nodes':>6} {'error':>6} {'tok/s':>8} {'nodes':>8} "
    head += f"{'ratio':>6} {'trees':>5} {'by Pace':>8}"
    rows = [
        f"{one.pair:10} {one.rows:4} {one.temperature:4} {one.streams:3} {one.tau_chain:6} {one.tau_nodes:6} "
        f"{one.error_nodes:6} "
        f"{one.tokens_per_s_chain:8} {one.tokens_per_s_nodes:8} {one.tokens_ratio:6} {one.share:5} "
        f"{one.tokens_per_s_by_pace:8} "
        f"{one.differ} of {one.texts} differ, {one.captured} captured"
        for one in lines
    ]
    return "\n".join([head, *rows])


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
