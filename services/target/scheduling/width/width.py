"""Chooses the `Plan.width` of a round: the one with most expected tokens per second, plain among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.target.scheduling.width.acceptance import Acceptance
from services.target.scheduling.width.costs import FIRST_ROUNDS, CostTable


class WidthPolicy(Protocol):
    """Chooses the width of each round from the requests that decode."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths it may choose, rising; the first is 1."""

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode; drafts have up to `cap` tokens, `left` may follow its first one (None: any)."""

    def leave(self, uid: int) -> None:
        """A request stops decoding."""

    def observe(self, uid: int, drafted: int, accepted: int, ended: bool) -> None:
        """A row verified `drafted` drafts and accepted the first `accepted` of them."""

    def choose(self, bucket: int, rows: int) -> int:
        """Width of the next round, in which `rows` requests decode."""

    def landed(self, bucket: int, width: int, committed: int, micros: float | None) -> None:
        """A round committed `committed` tokens; `micros` is None when its duration must not be learned."""

    def plain_micros(self, bucket: int) -> float:
        """Microseconds of a plain round of the bucket; 0 where none was measured."""


class FixedWidth:
    """One width for all rounds; plain while no request wants drafts."""

    def __init__(self, width: int, micros: Mapping[tuple[int, int], float] | None = None) -> None:
        """``micros`` by (bucket, width) are what warm-up measured."""
        self._micros = micros or {}
        self.widths = (1, width) if width > 1 else (1,)
        self._width = width
        self._caps: dict[int, int | None] = {}
        self._wanting = 0

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """Counts a request that wants drafts."""
        self._caps[uid] = cap
        self._wanting += cap != 0

    def leave(self, uid: int) -> None:
        """Forgets a request."""
        self._wanting -= self._caps.pop(uid) != 0

    def observe(self, uid: int, drafted: int, accepted: int, ended: bool) -> None:
        """Nothing to learn."""

    def choose(self, bucket: int, rows: int) -> int:
        """The width, or 1."""
        return self._width if self._wanting else 1

    def landed(self, bucket: int, width: int, committed: int, micros: float | None) -> None:
        """Nothing to learn."""

    def plain_micros(self, bucket: int) -> float:
        """As warm-up measured it."""
        return self._micros.get((bucket, 1), 0.0)


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """`hysteresis` is the gain that a switch must promise. It is divided by 1 + rounds since the last one / `patience`.

    A probe is one round of another width, a trial one of a width whose cost is not known yet. All of them may lose the
    share `probe_budget` of the time of all rounds, by what is expected when they are planned: what they commit is
    chance, and luck must not pay for more of them. The gap between probes grows from `probe_first` to `probe_last`
    rounds while they change nothing. It is at most `probe_close` while a wider width promises the share `close` of the
    present width's tokens per second. A probe of a narrower width shows its cost, and nothing of acceptance that wider
    rounds do not show.

    No other width is tried or probed in the first `settled` rounds of a bucket in a row, unless it was not for
    `unsettled` of its rounds: while a burst begins or ends each bucket lasts for few rounds.
    """

    hysteresis: float = 0.03
    patience: int = 64
    probe_budget: float = 0.01
    probe_first: int = 16
    probe_last: int = 256
    close: float = 0.85
    probe_close: int = 8
    settled: int = 6
    unsettled: int = 96


@dataclass(slots=True)
class _Bucket:
    """The choice for one bucket, its age in rounds, and when to probe another width."""

    width: int
    stayed: int = 0
    quiet: int = 0
    gap: int = 0
    probes: int = 0
    probing: bool = False
    trials: int = 0


class AdaptiveWidth:
    """Maximises expected commits over expected cost, with hysteresis, and probes widths that it does not use."""

    def __init__(
        self,
        widths: Sequence[int],
        costs: CostTable,
        acceptance: Acceptance,
        settings: AdaptiveSettings | None = None,
    ) -> None:
        if not widths or widths[0] != 1 or list(widths) != sorted(set(widths)):
            raise ValueError(f"widths {tuple(widths)} must rise and start with 1")
        self.widths = tuple(widths)
        self.costs = costs
        self.acceptance = acceptance
        self._settings = settings or AdaptiveSettings()
        self._buckets: dict[int, _Bucket] = {}
        self._spent = self._lost = 0.0
        self._bucket, self._in_a_row = 0, 0
        self._served: set[tuple[int, int]] = set()

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode."""
        self.acceptance.join(uid, cap, left)

    def leave(self, uid: int) -> None:
        """A request stops decoding."""
        self.acceptance.leave(uid)

    def observe(self, uid: int, drafted: int, accepted: int, ended: bool) -> None:
        """Learns from one row."""
        self.acceptance.observe(uid, drafted, accepted, ended)

    def rates(self, bucket: int) -> list[float]:
        """Expected tokens per microsecond by width."""
        expected = self.acceptance.expected()
        return [tokens / self.costs.cost(bucket, width) for tokens, width in zip(expected, self.widths, strict=True)]

    def choose(self, bucket: int, rows: int) -> int:
        """The width with the best rate, or a probe of another one."""
        rates = self.rates(bucket)[: self._useful()]
        best = max(range(len(rates)), key=rates.__getitem__)
        state = self._buckets.get(bucket)
        if state is None:
            state = self._buckets[bucket] = _Bucket(self.widths[best], gap=self._settings.probe_first)
        # No row drafts as far as the width in use any more: the best of the others replaces it.
        if state.width > self.widths[len(rates) - 1]:
            state.width, state.stayed = self.widths[best], 0
        current = self.widths.index(state.width)
        margin = self._settings.hysteresis / (1.0 + state.stayed / self._settings.patience)
        if best != current and rates[best] > rates[current] * (1.0 + margin):
            state.width, state.stayed, state.gap, current = self.widths[best], 0, self._settings.probe_first, best
        state.stayed += 1
        state.quiet += 1
        if not self._settled(bucket) and state.quiet <= self._settings.unsettled:
            return state.width
        return self._trial(bucket, state, rates, current) or self._probe(bucket, state, rates, current) or state.width

    def landed(self, bucket: int, width: int, committed: int, micros: float | None) -> None:
        """Learns the cost of a round, and whether a probe gained against the width in use.

        The first round of its kind tells no cost: a drafter and a GPU do then what they do once. A width that seemed
        dear for that would not be tried again for long.
        """
        if (bucket, width) not in self._served:
            self._served.add((bucket, width))
        elif micros is not None:
            self.costs.measured(bucket, width, micros)
        state = self._buckets.get(bucket)
        if state is None:
            return
        cost = self.costs.cost(bucket, width)
        self._spent += cost
        if state.probing and width != state.width:
            state.probing = False
            rate = self.rates(bucket)[self.widths.index(state.width)]
            # A wider probe with a gain is repeated at once; every other probe makes the next wait longer.
            paid = committed > cost * rate and width > state.width
            state.gap = 1 if paid else min(self._settings.probe_last, max(2 * state.gap, 16))

    def plain_micros(self, bucket: int) -> float:
        """Microseconds as measured at warm-up and by plain rounds since."""
        return self.costs.cost(bucket, 1)

    def _settled(self, bucket: int) -> bool:
        self._in_a_row = self._in_a_row + 1 if bucket == self._bucket else 1
        self._bucket = bucket
        return self._in_a_row > self._settings.settled

    def _useful(self) -> int:
        """How many of the widths, from plain on, let some row draft more than the one before."""
        expected = self.acceptance.expected()
        wider = [index for index in range(1, len(expected)) if expected[index] > expected[index - 1] * (1.0 + 1e-9)]
        return 1 + max(wider, default=0)

    def _trial(self, bucket: int, state: _Bucket, rates: Sequence[float], current: int) -> int | None:
        """Plain or a promising width that has had fewer than FIRST_ROUNDS served rounds in this bucket, if it is paid.

        Of near ties the choice compares costs of warm-up only for a bucket's first rounds.
        """
        if state.trials >= 2 * FIRST_ROUNDS * len(self.widths):
            return None
        bar = self._settings.close * max(rates)
        for width, rate in zip(self.widths, rates, strict=False):
            unknown = self.costs.live_rounds(bucket, width) < FIRST_ROUNDS
            if unknown and (width == 1 or rate >= bar) and self._pays(bucket, width, rate / rates[current]):
                state.trials += 1
                return width
        return None

    def _pays(self, bucket: int, width: int, worth: float) -> bool:
        """Takes from the budget what a round should lose that is worth so much of one of the present width."""
        loss = self.costs.cost(bucket, width) * max(0.0, 1.0 - worth)
        if self._lost + loss > self._settings.probe_budget * self._spent:
            return False
        self._lost += loss
        return True

    def _probe(self, bucket: int, state: _Bucket, rates: Sequence[float], current: int) -> int | None:
        others = [index for index in range(len(rates)) if index != current]
        if not others:
            return None
        # Mostly the next best. Every fourth time it is another width in turn, because an estimate may also be too low.
        turn, rest = divmod(state.probes, 4)
        other = others[turn % len(others)] if rest == 3 else max(others, key=rates.__getitem__)
        worth = rates[other] / rates[current]
        close = other > current and worth > self._settings.close
        gap = min(state.gap, self._settings.probe_close) if close else state.gap
        if state.quiet < gap or not self._pays(bucket, self.widths[other], worth):
            return None
        state.quiet = 0
        # A repeated probe does not count as a turn.
        state.probes += state.gap > 1
        state.probing = True
        return self.widths[other]


def adaptive_policy(
    widths: Sequence[int], buckets: Sequence[int], micros: Mapping[tuple[int, int], float]
) -> AdaptiveWidth:
    """An adaptive policy from the costs measured at warm-up."""
    return AdaptiveWidth(widths, CostTable(widths, buckets, micros), Acceptance(widths))
