"""python -m tests.bench.bursts: loads on a scheduler whose rounds take as long as on an H200, for pauses of rows.

Times are those of Qwen3-4B's shape in the log of November 2026, so a table tells how rules differ, not what a GPU does.
Prompts have 512 tokens, and a client needs some time to send each. In a closed loop the next request starts where one
has ended. Other prompts come before, from which the time of packs is known.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from services.common.request.sampling import SamplingParams, StopParams
from services.target.cache.blocks import BlockPool
from services.target.core.plan import Outcome, Plan
from services.target.core.request import RequestSpec
from services.target.device.shapes import buckets_of
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import PAUSE_S, SchedulerSettings
from services.target.scheduling.width.policy import FixedWidth

SLOTS, PROMPT, WIDTH, SEGMENT = 128, 512, 8, 64
PACK, MIXED, LEAST_MIXED = 4096, 3968, 3584
SHORT_S = 0.04
"""A pause that is shorter than a whole pack."""
LOOP_S, LEAD_S = 20.0, 3.0
SENT_S = 0.0003
"""From one request of a burst to the next."""
LAUNCH_S = 0.003
"""A host launches a round of prompts for so long; the next one is planned behind it."""
BEFORE = 24
"""Requests of one token that have ended before; some packs."""
BESIDE = 1400
"""Tokens of one that goes on."""
ACCEPTED = (0.86, 0.78, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Share of rounds that accept each draft."""
_DRAFTED_MS = ((0, 2.9), (8, 3.85), (32, 6.3), (64, 11.2), (96, 15.5), (128, 19.1))


def took_ms(plan: Plan) -> float:
    """How long a round takes: prompts, and rows beside them or in a forward of their own."""
    tokens = sum(-(-len(chunk.token_ids) // SEGMENT) * SEGMENT for chunk in plan.chunks)
    if plan.rows and plan.width == 1 and LEAST_MIXED < tokens <= MIXED:
        return 1.3 + 0.012 * PACK + 0.0324 * len(plan.rows)
    prompts_ms = max(2.6, 1.0 + 0.012 * tokens) if tokens else 0.0
    if not plan.rows:
        return prompts_ms
    return prompts_ms + (2.6 + 0.031 * plan.bucket if plan.width == 1 else _drafted_ms(plan.bucket))


def _drafted_ms(bucket: int) -> float:
    at = min(bisect_right([rows for rows, _ in _DRAFTED_MS], bucket), len(_DRAFTED_MS) - 1)
    (fewer, short), (more, long) = _DRAFTED_MS[at - 1 : at + 1]
    return short + (long - short) * (bucket - fewer) / (more - fewer)


@dataclass
class Simulation:
    """`requests` at once, of `out` tokens; in a loop of a quarter of these to all. Seconds of tokens by request.

    With `beside` one more request has decoded for a while when they come, which is not counted.
    """

    requests: int
    out: int
    loop: bool
    pause_s: float
    sent_s: float = SENT_S
    launch_s: float = LAUNCH_S
    seed: int = 20260101
    beside: bool = False
    arrivals: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        sizes = SchedulerSettings(
            slots=SLOTS, context_limit=2048, buckets=buckets_of(SLOTS), chunk_tokens=PACK // 2, pack_tokens=PACK,
            mixed_tokens=MIXED, segment=SEGMENT, look_ahead=1, pause_s=self.pause_s,
        )  # fmt: skip
        self._scheduler = Scheduler(sizes, BlockPool(SLOTS * 128, 16), None, FixedWidth(WIDTH))
        self._epochs: dict[int, int] = {}

    def run(self) -> None:
        """Plans a round ahead, as the engine does on a GPU."""
        before = [(-1.0, 1)] * BEFORE
        if self.beside:
            before[-1] = -0.3, BESIDE
        coming = deque(before + [(self.sent_s * number, 0) for number in range(self.requests)])
        in_flight: deque[tuple[Plan, float, dict[int, int]]] = deque()
        now = busy_until = -1.0
        while not self.loop or now < LEAD_S + LOOP_S:
            while coming and coming[0][0] <= now:
                self._add(*coming.popleft())
            while len(in_flight) < 2 and not (plan := self._scheduler.plan(now)).empty:
                self._epochs |= {admission.slot: admission.epoch for admission in plan.admissions}
                busy_until = max(busy_until, now) + took_ms(plan) / 1e3
                in_flight.append((plan, busy_until, dict(self._epochs)))
                now += self.launch_s if plan.chunks else 0.0
                while coming and coming[0][0] <= now:
                    self._add(*coming.popleft())
            if coming and (not in_flight or coming[0][0] < in_flight[0][1]):
                now = coming[0][0]
                continue
            if not in_flight:
                return
            plan, ended, epochs = in_flight.popleft()
            now = max(now, ended)
            for news in self._scheduler.commit(plan, self._outcomes(plan, epochs), now).progress:
                self.arrivals.setdefault(int(news.request.spec.request_id), []).append((now, len(news.tokens)))
                if self.loop and news.end is not None and now > 0.0:
                    self._add(now)

    def figures(self) -> tuple[float, float, float, float]:
        """Tokens per second, and the 99th percentiles of first tokens, of gaps, and of those beside prompts, ms.

        The last are gaps that begin before the last first token of requests that start at once.
        """
        streams = [stream for name, stream in self.arrivals.items() if name >= BEFORE]
        first, last = (LEAD_S, LEAD_S + LOOP_S) if self.loop else (0.0, max(stream[-1][0] for stream in streams))
        tokens = sum(count for stream in streams for at, count in stream if first <= at <= last)
        firsts = [(self.arrivals[name][0][0] - self.began[name]) * 1e3 for name in self.arrivals if name >= BEFORE]
        pairs = [pair for stream in streams for pair in pairwise(stream)]
        gaps = [(after - before) * 1e3 for (before, _), (after, _) in pairs]
        ready = max(stream[0][0] for stream in streams[: self.requests])
        beside = [(after - before) * 1e3 for (before, _), (after, _) in pairs if before < ready]
        return tokens / (last - first), _p99(firsts), _p99(gaps), _p99(beside)

    def _add(self, now: float, tokens: int = 0) -> None:
        number = len(self.began)
        out = tokens or (self._random.randint(self.out // 4, self.out) if self.loop else self.out)
        ids = tuple(range(number * 7, number * 7 + PROMPT))
        stopping = StopParams(max_tokens=out, ignore_eos=True)
        spec = RequestSpec(str(number), ids, PROMPT, SamplingParams(seed=number), stopping)
        self._scheduler.add(spec, None, now)
        self.began[number] = now

    def _outcomes(self, plan: Plan, epochs: dict[int, int]) -> list[Outcome]:
        found = [Outcome(chunk.slot, chunk.epoch, (5,)) for chunk in plan.chunks if chunk.last]
        for slot in plan.rows:
            luck = self._random.random()
            accepted = sum(luck < share for share in ACCEPTED) if plan.width > 1 else 0
            found.append(Outcome(slot, epochs[slot], (5,) * (accepted + 1), accepted, plan.width - 1))
        return found


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def main() -> None:
    """Prints a table for the pause that serves, with one request more that decodes, and for one shorter than a pack."""
    figures = "tok/s | first token p99, ms | between tokens p99, ms | the same beside prompts"
    print(f"| load | pause, s | {figures} |\n|---|---|---|---|---|---|")
    for requests, out, loop in ((32, 512, False), (128, 512, False), (128, 128, False), (32, 512, True),
                                (128, 512, True)):  # fmt: skip
        for pause_s, beside in ((PAUSE_S, False), (PAUSE_S, True), (SHORT_S, False)):
            load = Simulation(requests, out, loop, pause_s, beside=beside)
            load.run()
            name = f"{requests} {'in a loop' if loop else 'at once'}, {out} out{', one beside' * beside}"
            print(f"| {name} | {pause_s} | " + " | ".join(f"{figure:,.0f}" for figure in load.figures()) + " |")


if __name__ == "__main__":
    main()
