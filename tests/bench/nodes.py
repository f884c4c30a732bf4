"""python -m tests.bench.nodes: rounds of trees against rounds of chains of as many rows, through running pairs.

Prints one JSON line for each number of rows and each temperature. The pair is SmolLM2's where it is installed, else the
embedded one. Both ways are up at once, and each prompt is answered by both, and once by plain decoding for all numbers
of rows. With `--free` both choose their widths up to as many rows, one of chains and the other of chains and trees.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from deploy.shipped import SMOLLM2, usual_pair
from paceline import Answer, Client, Options
from tests.bench.load.pairs import Mode, Pairs
from tests.bench.nodes_offline import Pair, read_pair

ROWS, TEMPERATURES = (8, 16), (0.0, 0.8)
WIDTHS = (1, 4, 8, 16)
SIZES = {"embedded": (16, 96), SMOLLM2: (8, 64)}
"""Prompts of each pair, and the most tokens of an answer."""
SECONDS = 540.0
"""In which all ends, starts included; a line has fewer texts on a slow machine."""


@dataclass(frozen=True)
class Line:
    """Tokens a round with a bonus each, of chains and of trees; the ratio of tokens a second; texts, and how many of
    them are not what plain decoding says, by chain or tree."""

    rows: int
    temperature: float
    tau_chain: float
    tau_nodes: float
    tokens_ratio: float
    texts: int
    differ: int


@dataclass(frozen=True)
class Told:
    """One prompt as each way answers it."""

    plain: Answer
    chain: Answer
    nodes: Answer


@dataclass
class Budget:
    """When all must end, and the lines and starts of pairs that are to come; a start takes as long as the longest."""

    end: float
    lines: int
    starts: int
    start_s: float = 0.0

    def started(self, seconds: float) -> None:
        """Pairs have started."""
        self.starts, self.start_s = self.starts - 1, max(self.start_s, seconds)

    def line(self) -> float:
        """When the next line must end, so that those behind it have as long."""
        now = time.monotonic()
        share = (self.end - now - self.starts * self.start_s) / self.lines
        self.lines -= 1
        return now + share


def main() -> int:
    """Measures every number of rows; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodes", description=__doc__)
    parser.add_argument("--pair", choices=SIZES, default=SMOLLM2 if usual_pair().model == SMOLLM2 else "embedded")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--prompts", type=int, default=0, help="0: as many as the pair's share of ten minutes")
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--free", action="store_true")
    asked = parser.parse_args()
    prompts, tokens = SIZES[asked.pair]
    pair = read_pair(asked.pair, asked.prompts or prompts)
    for line in measure(pair, asked.rows, asked.tokens or tokens, asked.seconds, asked.free):
        print(json.dumps(asdict(line)), flush=True)
    return 0


def ways_of(rows: int, free: bool) -> list[Mode]:
    """Return how both targets are started."""
    if free:
        widths = ("--widths", ",".join(str(width) for width in WIDTHS if width <= rows))
        return [Mode("chain", "chain", widths), Mode("nodes", "nodes", (*widths, "--nodes", "true"))]
    fixed = ("--widths", f"1,{rows}", "--adaptive", "false")
    # A chain is as long as the drafter's block at most.
    chains = ("--widths", ",".join(map(str, range(1, rows + 1))), "--adaptive", "false")
    return [Mode("chain", "chain", chains), Mode("nodes", "nodes", (*fixed, "--nodes", "true"))]


def measure(pair: Pair, every: Sequence[int], tokens: int, seconds: float, free: bool = False) -> Iterator[Line]:
    """Yield a line for each number of rows and each temperature, within so many seconds."""
    budget = Budget(time.monotonic() + seconds, len(every) * len(TEMPERATURES), len(every))
    plain: dict[tuple[float, int], Answer] = {}
    for rows in every:
        began = time.monotonic()
        with Pairs(ways_of(rows, free), 1, note, pair.target, pair.drafter) as pairs:
            budget.started(time.monotonic() - began)
            for temperature in TEMPERATURES:
                note(f"{rows} rows at temperature {temperature}")
                with Client(pairs.addresses["chain"]) as chain, Client(pairs.addresses["nodes"]) as nodes:
                    told = list(tell(chain, nodes, pair.prompts, temperature, tokens, budget.line(), plain))
                yield summarise(rows, temperature, told)


def tell(
    chain: Client, nodes: Client, prompts: Sequence[Sequence[int]], temperature: float, tokens: int, end: float,
    known: dict[tuple[float, int], Answer],
) -> Iterator[Told]:  # fmt: skip
    """Yield answers, at least one, while the next one should end in time; a first one of each way warms up.

    Plain answers are `known`, or become so.
    """
    for client in (chain, nodes):
        client.generate(prompts[0], Options(max_tokens=8, temperature=temperature, seed=0))
    longest = 0.0
    for index, prompt in enumerate(prompts):
        begin = time.monotonic()
        if index and begin + longest > end:
            return
        options = Options(max_tokens=tokens, temperature=temperature, seed=index)
        if (temperature, index) not in known:
            plain = Options(max_tokens=tokens, temperature=temperature, seed=index, speculation=False)
            known[temperature, index] = chain.generate(prompt, plain)
        yield Told(known[temperature, index], chain.generate(prompt, options), nodes.generate(prompt, options))
        longest = max(longest, time.monotonic() - begin)


def summarise(rows: int, temperature: float, told: Sequence[Told]) -> Line:
    """Return the line of all texts together."""
    chains, trees = [one.chain for one in told], [one.nodes for one in told]
    unlike = [one for one in told if not one.plain.tokens == one.chain.tokens == one.nodes.tokens]
    ratio = speed(trees) / speed(chains)
    return Line(rows, temperature, tau(chains), tau(trees), round(ratio, 3), len(told), len(unlike))


def tau(answers: Sequence[Answer]) -> float:
    """Return tokens a round: those that were accepted, and one more each."""
    rounds = sum(answer.rounds for answer in answers)
    return round((sum(answer.accepted for answer in answers) + rounds) / rounds, 3)


def speed(answers: Sequence[Answer]) -> float:
    """Return tokens a second behind the first ones."""
    tokens = sum(len(answer.tokens) - answer.first_tokens for answer in answers)
    return tokens / sum(answer.decode_s for answer in answers)


def note(message: str) -> None:
    """Print what is being done beside the lines."""
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
