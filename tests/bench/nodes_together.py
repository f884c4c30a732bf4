"""python -m tests.bench.nodes_together: trees of equal size against nodes chosen over all requests of a round at once.

Offline: the pair's target writes answers by plain decoding, its drafter is asked at every anchor, and rounds of several
requests are replayed. All ways check as many rows together. `joint` takes the nodes that are likeliest by the drafter's
scores, `history` weighs them by what a request accepted against what was promised, and `known` is the bound: it gives
each request the nodes up to the deepest one that its text follows. A request that has ended makes room for the next.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import heapify, heappop, heappush

import torch

from tests.bench.nodes_offline import SIZES, Asked, read_pair, write
from tests.bench.tree_count import Ranked

BUCKETS, ROWS, TEMPERATURES, CANDIDATES = (8, 32), (8, 16), (0.0, 0.8), 8
MOST, LOADS, SEED = 48, 6, 62
"""Nodes of a request, and requests of a load by those at once."""
KEPT = 0.9
Path = tuple[int, ...]
Node = tuple[float, Path]
"""How likely a node is, a log, and the ranks of its path."""


@dataclass(frozen=True)
class Line:
    """Tokens a round and request while all places are taken, and rounds of the whole load."""

    pair: str
    temperature: float
    coupled: bool
    requests: int
    rows: int
    way: str
    tokens: float
    rounds: int


class Text:
    """The tokens of an answer behind its first one, and by anchor the nodes that a drafter ranks."""

    def __init__(self, truth: list[int], ranked: Sequence[Ranked]) -> None:
        self.truth, self._ranked = truth, ranked
        self._nodes = [best_first(one) for one in ranked]

    def __len__(self) -> int:
        return len(self._ranked)

    def nodes(self, anchor: int) -> list[Node]:
        """The likeliest nodes behind an anchor, the best first."""
        return self._nodes[anchor]

    def way(self, anchor: int) -> Path:
        """The ranks of the tokens that the text has behind an anchor, as far as they are candidates."""
        ranks: list[int] = []
        for ids, token in zip(self._ranked[anchor].ids, self.truth[anchor:], strict=False):
            if token not in ids[:CANDIDATES]:
                break
            ranks.append(ids.index(token))
        return tuple(ranks)


@dataclass
class Request:
    """Where a request is in its text, and what its nodes promised and accepted, older rounds less."""

    text: Text
    anchor: int = 0
    promised: float = 1.0
    accepted: float = 1.0

    @property
    def nodes(self) -> list[Node]:
        """Those behind its anchor."""
        return self.text.nodes(self.anchor)

    def advance(self, chosen: set[Path]) -> int:
        """Goes on by a round; returns its tokens."""
        way = self.text.way(self.anchor)
        right = next((depth for depth in range(len(way)) if way[: depth + 1] not in chosen), len(way))
        self.promised = KEPT * self.promised + sum(math.exp(log) for log, path in self.nodes if path in chosen)
        self.accepted = KEPT * self.accepted + right
        self.anchor += right + 1
        return right + 1


Way = Callable[[Sequence[Request], int], list[set[Path]]]
"""Chooses nodes of each request, so many rows together, an anchor of each among them."""


def best_first(ranked: Ranked) -> list[Node]:
    """Return the nodes of the largest products of chances; parents come before children."""
    heap: list[Node] = [(-score, (rank,)) for rank, score in enumerate(ranked.scores[0][:CANDIDATES])]
    found: list[Node] = []
    while heap and len(found) < MOST:
        cost, path = heappop(heap)
        found.append((-cost, path))
        if len(path) < len(ranked.scores):
            for rank, score in enumerate(ranked.scores[len(path)][:CANDIDATES]):
                heappush(heap, (cost - score, (*path, rank)))
    return found


def equal(requests: Sequence[Request], rows: int) -> list[set[Path]]:
    """As many nodes for each."""
    return [{path for _, path in one.nodes[: rows // len(requests) - 1]} for one in requests]


def joint(requests: Sequence[Request], rows: int, weighed: bool = False) -> list[set[Path]]:
    """The likeliest over all requests."""
    every = []
    for place, one in enumerate(requests):
        trust = 0.5 * math.log(one.accepted / one.promised) if weighed else 0.0
        every += [(-(log + trust * len(path)), len(path), place, path) for log, path in one.nodes]
    chosen: list[set[Path]] = [set() for _ in requests]
    for _, _, place, path in sorted(every)[: rows - len(requests)]:
        chosen[place].add(path)
    return chosen


def history(requests: Sequence[Request], rows: int) -> list[set[Path]]:
    """The likeliest, by how far each request could be trusted until now."""
    return joint(requests, rows, weighed=True)


def known(requests: Sequence[Request], rows: int) -> list[set[Path]]:
    """The fewest first nodes of each request that hold what its text says, while there is room."""
    sizes = []
    for one in requests:
        places = {path: size for size, (_, path) in enumerate(one.nodes, start=1)}
        way = one.text.way(one.anchor)
        prefixes = (way[: depth + 1] for depth in range(len(way)))
        sizes.append([places[path] for path in prefixes if path in places])
    taken, room = [0] * len(requests), rows - len(requests)
    heap = [(every[0], place, 0) for place, every in enumerate(sizes) if every]
    heapify(heap)
    while heap:
        more, place, depth = heappop(heap)
        if more > room:
            continue
        room, taken[place] = room - more, sizes[place][depth]
        if depth + 1 < len(sizes[place]):
            heappush(heap, (sizes[place][depth + 1] - sizes[place][depth], place, depth + 1))
    return [{path for _, path in one.nodes[:size]} for one, size in zip(requests, taken, strict=True)]


WAYS: dict[str, Way] = {"equal": equal, "joint": joint, "history": history, "known": known}


def load(texts: Sequence[Text], requests: int, rows: int, way: Way) -> tuple[float, int]:
    """Return tokens a round and request of full rounds, and how many rounds all took."""
    pick = random.Random(SEED)
    waiting = [Request(pick.choice(texts)) for _ in range(LOADS * requests)]
    running: list[Request] = []
    rounds = full = tokens = 0
    while waiting or running:
        while waiting and len(running) < requests:
            running.append(waiting.pop())
        chosen = way(running, rows * len(running))
        made = sum(one.advance(nodes) for one, nodes in zip(running, chosen, strict=True))
        rounds += 1
        if len(running) == requests:
            full, tokens = full + 1, tokens + made
        running = [one for one in running if one.anchor < len(one.text)]
    return tokens / full / requests, rounds


def count(name: str, prompts: int, tokens: int) -> Iterator[Line]:
    """Yield a line for each temperature, number of requests and rows, and way."""
    pair = read_pair(name, prompts)
    asked = Asked(pair)
    for temperature in TEMPERATURES:
        answers = write(pair, temperature, tokens)
        for coupled in (True, False) if temperature else (False,):
            texts = [Text(one.ids[one.start + 1 :], asked.ranked(one, coupled)) for one in answers]
            for requests in BUCKETS:
                for rows in ROWS:
                    for told, way in WAYS.items():
                        found, rounds = load(texts, requests, rows, way)
                        yield Line(name, temperature, coupled, requests, rows, told, round(found, 3), rounds)


def main() -> int:
    """Prints a line of JSON for each; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodes_together", description=__doc__)
    parser.add_argument("--pair", choices=SIZES, default="smollm2")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for line in count(asked.pair, asked.prompts, asked.tokens):
        print(json.dumps(asdict(line)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
