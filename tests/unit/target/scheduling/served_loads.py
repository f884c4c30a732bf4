"""Loads of requests that start at once, decoded in simulated time by round times that were measured on a GPU.

The next round is planned before the present one has landed, as where flags hand drafts over.
"""

import json
import random
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, cycle, pairwise
from pathlib import Path

from services.target.core.width import Ragged, Tree
from services.target.device.shapes import buckets_of
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.acceptance_profiles import conditional

Micros = Mapping[tuple[int, int], float]
Heat = Mapping[tuple[int, int], float]
"""By how much rounds of a kind slow down those of any kind, when they follow one another: a GPU's clock goes down."""

MEASURED = Path(__file__).parents[4] / "tests/bench/results/gpu_h200_adaptive_P65_2026-11-23.json"
BUCKETS = buckets_of(128)
VERIFY, PLAIN = 0.82, 0.98
"""What warm-up measures of a round with drafts, and of one without: the verify alone."""
_DRAWS = 1 << 20
_RAMP = 24
"""Prompts that are computed while decoding pauses; then a round is due."""
_JITTER = 0.03
CONTEXT_MICROS = 0.06
"""A token more in one row's context, at any width: on an H100 loads of 512 tokens differ so from those of 128."""
WARM_MICROS = 0.052
"""What warm-up measures of it: the verify alone."""
PROMPT = 512
_MEASURED_AT = PROMPT + 64
"""Tokens of a row's context, on average, in the loads whose rounds were measured."""
_CLOCK_FOLLOWS = 0.2
_BEHIND = 0.93
"""Fixed widths below this share of the best one's steady speed are best in no load."""


def round_micros(widths: Sequence[int]) -> dict[tuple[int, int], float]:
    """Microseconds of a round of Qwen3-4B's shapes by (bucket, width), in between on a line between measured ones."""
    rows = json.loads(MEASURED.read_text())["rows"]
    found = {(row["concurrency"], row["k"] + 1): row["round_us"] for row in rows if row["mode"] in ("plain", "fixed")}
    buckets, measured = ({cell[axis] for cell in found} for axis in (0, 1))
    by_bucket = {
        bucket: {width: _between(width, {other: found[bucket, other] for other in measured}) for width in widths}
        for bucket in buckets
    }
    return {
        (bucket, width): _between(bucket, {other: by_bucket[other][width] for other in buckets})
        for bucket in BUCKETS
        for width in widths
    }


def ragged_micros(every: Sequence[Ragged], micros: Micros, dearer: float = 1.0) -> dict[tuple[int, int], float]:
    """Microseconds of rounds of chains of any lengths: those of a chain of as many rows on average, times a factor."""
    return {
        (bucket, width): dearer * _between(max(1.0, min(16.0, width.rows / bucket)), _of_bucket(micros, bucket))
        for bucket in BUCKETS
        for width in every
    }


def _of_bucket(micros: Micros, bucket: int) -> dict[int, float]:
    return {width: took for (own, width), took in micros.items() if own == bucket and not isinstance(width, Ragged)}


def _between(place: float, known: Mapping[int, float]) -> float:
    if place in known:
        return known[int(place)]
    low, high = next((low, high) for low, high in pairwise(sorted(known)) if low < place < high)
    return known[low] + (known[high] - known[low]) * (place - low) / (high - low)


def fresh_policy(widths: Sequence[int], micros: Micros, per_token: float = 0.0) -> WidthPolicy:
    """An adaptive policy that knows what warm-up measures: rounds of short contexts, and what a token in them adds."""
    warm = {
        (bucket, width): took * (PLAIN if width == 1 else VERIFY) - per_token * _MEASURED_AT * bucket
        for (bucket, width), took in micros.items()
    }
    return adaptive_policy(widths, BUCKETS, warm, dict.fromkeys(widths, per_token))


@dataclass(frozen=True, slots=True)
class Round:
    """A round that was planned, and what it takes."""

    rows: tuple[int, ...]
    bucket: int
    width: int
    takes: tuple[int, ...]
    micros: float
    with_prompts: bool
    context: int


class Drafter:
    """Whether the token at a depth is the drafter's first, second, ... choice, where all before were among them.

    A token is of one of some `kinds`, as likely each, which the drafter knows: chances are by kind, depth and choice.
    Its trees are those of the largest products.
    """

    def __init__(self, *kinds: Sequence[Sequence[float]]) -> None:
        self._kinds = kinds
        self._limits = [[[_DRAWS * below for below in accumulate(chances)] for chances in kind] for kind in kinds]
        self._trees: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        self._trunks: dict[tuple[int, ...], tuple[int, ...]] = {}

    def accepted(self, draws: Sequence[int], width: int, place: int = 0) -> tuple[list[int], tuple[int, ...]]:
        """Rows that are accepted by the draws from a place on, and those of the first children; of a chain it has none.

        Loads ask for nothing more often than this.
        """
        count, limits = len(self._kinds), self._limits
        reach = min(width - 1, len(self._kinds[0]), len(draws) - place)
        if not isinstance(width, Tree):
            for depth in range(reach):
                draw = draws[place + depth]
                if draw >= limits[draw % count][depth][0]:
                    return list(range(1, depth + 1)), ()
            return list(range(1, reach + 1)), ()
        of = tuple([draw % count for draw in draws[place : place + reach]])
        nodes = self._tree(width, of)
        path: tuple[int, ...] = ()
        rows: list[int] = []
        for depth, kind in enumerate(of):
            path = (*path, bisect_right(limits[kind][depth], draws[place + depth]))
            if path not in nodes:
                break
            rows.append(nodes[path])
        asked = (width, *of)
        if asked not in self._trunks:
            self._trunks[asked] = tuple([row for path, row in nodes.items() if not any(path)])
        return rows, self._trunks[asked]

    def _tree(self, width: int, of: tuple[int, ...]) -> Mapping[tuple[int, ...], int]:
        if (width, *of) not in self._trees:
            chances = [self._kinds[kind][depth] for depth, kind in enumerate(of)]
            heap: list[tuple[float, tuple[int, ...]]] = [(-chances[0][0], (0,))]
            found: dict[tuple[int, ...], int] = {}
            while heap and len(found) + 1 < width:
                score, path = heappop(heap)
                found[path] = len(found) + 1
                *before, rank = path
                choices = chances[len(before)]
                if rank + 1 < len(choices):
                    heappush(heap, (score * choices[rank + 1] / choices[rank], (*before, rank + 1)))
                if len(path) < len(chances):
                    heappush(heap, (score * chances[len(path)][0], (*path, 0)))
            self._trees[width, *of] = found
        return self._trees[width, *of]


class Served:
    """One policy that serves loads one after another; whether drafts match depends on the token's place alone.

    Requests have the `drafters` in turn.
    """

    def __init__(
        self,
        policy: WidthPolicy,
        micros: Micros,
        drafter: Drafter | Sequence[Drafter],
        seed: int,
        heat: Heat | None = None,
        context_micros: float = 0.0,
    ) -> None:
        self._context_micros = context_micros
        self._policy, self._micros, self._seed = policy, micros, seed
        self._drafters = [drafter] if isinstance(drafter, Drafter) else [*drafter]
        self._heat, self._slower = heat or {}, 0.0
        self._noise = random.Random(seed)
        self._requests = self._tokens = self._prompt = 0
        self._left: dict[int, int] = {}
        self._draws: dict[int, list[int]] = {}

    def load(self, requests: int, tokens: int, prompt: int = PROMPT, at_once: int | None = None) -> float:
        """Microseconds of the rounds of a load, of which so many may run; the prompts' own time is not among them."""
        self._tokens, self._prompt = tokens, prompt
        first = self._requests
        self._requests += requests
        self._draws = {
            uid: random.Random(self._seed << 20 | uid).choices(range(_DRAWS), k=2 * tokens)
            for uid in range(first, first + requests)
        }
        waiting, total = list(self._draws), 0.0
        in_flight: Round | None = None
        while waiting or self._left or in_flight:
            room = _RAMP if at_once is None else min(_RAMP, at_once - len(self._left))
            joined = waiting[:room]
            for uid in joined:
                self._left[uid] = tokens - 1
                self._policy.join(uid, None, tokens - 1)
            del waiting[:room]
            planned = self._plan(bool(waiting if at_once is None else joined)) if self._left else None
            total += planned.micros if planned else 0.0
            if in_flight:
                self._land(in_flight, tokens)
            in_flight = planned
        return total

    def _plan(self, with_prompts: bool) -> Round:
        rows = tuple(self._left)
        bucket = _bucket(len(rows))
        context = sum(self._prompt + self._tokens - left for left in self._left.values())
        width = self._policy.choose(bucket, len(rows), context)
        self._slower += _CLOCK_FOLLOWS * (self._heat.get((bucket, width), 0.0) - self._slower)
        grown = self._context_micros * (context - _MEASURED_AT * len(rows))
        micros = (self._micros[bucket, width] + grown) * (1.0 + self._slower)
        micros *= self._noise.uniform(1.0 - _JITTER, 1.0 + _JITTER)
        takes = (width,) * len(rows)
        if isinstance(width, Ragged):
            takes = self._policy.takes(width, rows)
            assert sum(takes) <= width.rows and min(takes) >= width.grain, "whole pieces that fit"
        return Round(rows, bucket, width, takes, micros, with_prompts, context)

    def _land(self, landed: Round, tokens: int) -> None:
        committed = 0
        for uid, take in zip(landed.rows, landed.takes, strict=True):
            if uid not in self._left:
                continue
            place = tokens - self._left[uid]
            drafter = self._drafters[uid % len(self._drafters)]
            path, trunk = drafter.accepted(self._draws[uid], take, place)
            accepted = min(len(path), self._left[uid] - 1)
            self._left[uid] -= accepted + 1
            committed += accepted + 1
            ended = self._left[uid] == 0
            self._policy.observe(uid, take - 1, accepted, ended, path[:accepted] if trunk else (), trunk)
            if ended:
                self._policy.leave(uid)
                del self._left[uid]
        micros = None if landed.with_prompts else landed.micros
        self._policy.landed(landed.bucket, landed.width, committed, micros, landed.context)


def regret(
    widths: Sequence[int],
    requests: int,
    tokens: Sequence[int],
    rates: Sequence[float],
    seeds: range,
    *,
    prompts: Sequence[int] = (PROMPT,),
    per_token: float = 0.0,
) -> dict[int, float]:
    """By tokens of a load: the share of speed that a fresh policy loses in loads in a row, against the best width.

    Loads have `prompts` in turn.
    """
    micros, drafter = round_micros(widths), Drafter([(chance,) for chance in conditional(rates)])

    def spent(width: int | None) -> dict[int, float]:
        total = dict.fromkeys(tokens, 0.0)
        for seed in seeds:
            policy = FixedWidth(width) if width else fresh_policy(widths, micros, per_token)
            served = Served(policy, micros, drafter, seed, context_micros=CONTEXT_MICROS)
            for each, prompt in zip(tokens, cycle(prompts), strict=False):
                total[each] += served.load(requests, each, prompt)
        return total

    steady = {width: (1.0 + sum(rates[: width - 1])) / micros[_bucket(requests), width] for width in widths}
    fixed = [spent(width) for width in widths if steady[width] > _BEHIND * max(steady.values())]
    chosen = spent(None)
    return {each: 1.0 - min(one[each] for one in fixed) / chosen[each] for each in sorted(set(tokens))}


def _bucket(rows: int) -> int:
    return BUCKETS[bisect_left(BUCKETS, rows)]
