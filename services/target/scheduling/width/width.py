"""Chooses the `Plan.width` of a round: the one with most expected tokens per second, plain among them."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.target.core.width import Ragged, Tree, Width, order_of
from services.target.scheduling.width.ability import Abilities
from services.target.scheduling.width.acceptance import Acceptance
from services.target.scheduling.width.bucket_choice import BucketChoice
from services.target.scheduling.width.costs import FIRST_ROUNDS, Cell, CostTable
from services.target.scheduling.width.node_acceptance import NodeAcceptance
from services.target.scheduling.width.policy import ServedRounds
from services.target.scheduling.width.visits import RUN, SHORT_RUN, Visit, scatter

_FREE_VISITS = 2
"""Of trees from chains or the other way, in a bucket, before what is thought of them counts fully. As many need no
budget; more of them do, where prompts or other numbers of requests have cut these."""


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """`hysteresis` is the gain that a switch must promise. It is divided by 1 + rounds since the last one / `patience`.

    A probe is one round of another width, a trial one of a width whose cost is not known yet. All of them may lose the
    share `probe_budget` of the time of all rounds, by what is expected when they are planned: what they commit is
    chance, and luck must not pay for more of them. The gap between probes grows from `probe_first` to `probe_last`
    rounds while they change nothing. It is at most `probe_close` while a wider width promises the share `close` of the
    present width's tokens per second. A probe of a narrower width shows its cost, and nothing of acceptance that wider
    rounds do not show.

    A visit is a run of rounds of another width that promises the share `near` of the present one's tokens per second.
    It is visited again after `visit_first` such runs, and then each time after `visit_growth` times as many, up to
    `visit_last` rounds. Rounds of fewer rows than `visit_rows` leave a GPU below its limit, and what they accept
    changes too often for runs. Trees and chains visit one another there too, by short runs, and are compared by
    nothing else: what a tree asks of the host falls into the round behind it, so single rounds do not tell. Until some
    visits have told, they are near by `doubt` times the share by which rounds scatter, less.

    No other width is tried, visited or probed in the first `settled` rounds of a bucket in a row, unless it was not for
    `unsettled` of its rounds: while a burst begins or ends each bucket lasts for few rounds.

    Rows are left out of a round for a gain of the share `left_out`. A step to a wider width must gain the share `wider`
    for each 64 rows: while requests end, wide rounds of many rows waste more. Chains of any lengths must gain the share
    `ragged`: rows that go to the requests of which most is thought go to luck as well. They need `ragged_rows`
    requests: of fewer chance decides.
    """

    hysteresis: float = 0.03
    patience: int = 64
    probe_budget: float = 0.006
    probe_first: int = 16
    probe_last: int = 256
    close: float = 0.85
    probe_close: int = 8
    near: float = 0.94
    doubt: float = 6.0
    visit_rows: int = 16
    visit_first: int = 4
    visit_growth: int = 4
    visit_last: int = 1024
    settled: int = 6
    unsettled: int = 96
    left_out: float = 0.02
    wider: float = 0.008
    ragged: float = 0.015
    ragged_rows: int = 16


class AdaptiveWidth:
    """Maximises expected commits over expected cost, with hysteresis, and probes widths that it does not use."""

    def __init__(
        self,
        widths: Sequence[Width],
        costs: CostTable,
        acceptance: Acceptance,
        settings: AdaptiveSettings | None = None,
    ) -> None:
        if not widths or widths[0] != 1 or list(widths) != sorted(set(widths), key=order_of):
            raise ValueError(f"widths {tuple(widths)} must rise and start with 1")
        self.widths = tuple(widths)
        self.costs = costs
        self.acceptance = acceptance
        self.observe = acceptance.observe
        """Learns from one row. Every row of every round comes here, so nothing stands between."""
        self._settings = settings or AdaptiveSettings()
        self._counts = sorted(set(map(int, widths)))
        self._trees_of = [isinstance(width, Tree) for width in widths]
        self._worth: dict[int, list[float]] = {}
        """By bucket, what rates of each width count for."""
        self._buckets: dict[int, BucketChoice] = {}
        self._spent = self._lost = 0.0
        self._bucket, self._in_a_row, self._context = 0, 0, 0
        self._seen: set[Cell] = set()
        self._served = ServedRounds()
        self._tells = self._trees = False

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode."""
        self.acceptance.join(uid, cap, left)

    def leave(self, uid: int) -> None:
        """A request stops decoding."""
        self.acceptance.leave(uid)

    def missed(self, uid: int) -> None:
        """Learns that a row had no drafts."""
        self.acceptance.missed(uid)

    def rates(self, bucket: int, context: float = 0.0) -> list[float]:
        """Expected tokens per microsecond by width, of as many of the rows as the bucket holds, with such contexts."""
        expected = self.acceptance.tokens(min(1.0, bucket / max(1, self.acceptance.rows)))
        costs = (self.costs.cost(bucket, width, context) for width in self.widths)
        return [tokens / cost for tokens, cost in zip(expected, costs, strict=True)]

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """Rows of each of these requests: those that should bring most."""
        return self.acceptance.takes(width, uids)

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """All rows, or as many as fill the next smaller bucket, if they bring more tokens a second without the others.

        A round of 33 rows takes as long as one of 48.
        """
        at = bisect_left(buckets, rows)
        if at == 0 or buckets[at] == rows:
            return rows
        part = context * buckets[at - 1] / rows
        fewer = max(self._useful_rates(buckets[at - 1], part))
        all_rows = max(self._useful_rates(buckets[at], context))
        return buckets[at - 1] if fewer > all_rows * (1.0 + self._settings.left_out) else rows

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """The width with the best rate, or a round of another one."""
        self._context = context
        rates = self._preferred(bucket)
        state = self._state(bucket, rates)
        better = self._better(state, rates)
        if state.visit is not None:
            held = better is None or self._apart(state.visit.width, state.width)
            if bucket == self._bucket and held and self._near(state, rates, state.visit.width):
                return state.visit.next() or state.width
            self._end(bucket, state, state.visit)
        if better is not None:
            state.width, state.stayed, state.gap = better, 0, self._settings.probe_first
        state.stayed += 1
        state.quiet += 1
        state.rounds += 1
        return self._other(bucket, state, rates) or state.width

    def landed(self, bucket: int, width: Width, committed: int, micros: float | None, context: int = 0) -> None:
        """Learns the cost of a round, and whether a probe gained against the width in use.

        The first round of its kind tells no cost: a drafter and a GPU do then what they do once. A width that seemed
        dear for that would not be tried again for long. Nor does the first round of chains or trees behind the others:
        the host works for those meanwhile.
        """
        state, self._context = self._buckets.get(bucket), context
        if (bucket, width) not in self._seen:
            self._seen.add((bucket, width))
            micros = None
        if width != 1 and isinstance(width, Tree) != self._trees:
            micros = None
        self._trees = isinstance(width, Tree)
        self._held(bucket, state, width, micros, context)
        if state is not None and state.visit is not None:
            self._visited(bucket, state, state.visit, width, micros)
        elif micros is not None:
            self.costs.measured(bucket, width, micros, context)
        if state is None:
            return
        if width != state.width:
            state.recent.clear()
        elif micros is not None:
            state.recent.append(micros)
        self._spent += self.costs.cost(bucket, width, context)
        if state.probing and width != state.width:
            self._probed(bucket, state, width, committed)

    def plain_micros(self, bucket: int, context: int = 0) -> float:
        """By the mean of plain rounds that were served, whatever for. Nothing ran beside those of warm-up."""
        mean = self._served.mean(bucket) if self._tells else 0.0
        return mean and mean + self.costs.of_context(1, context)

    def _held(self, bucket: int, state: BucketChoice | None, width: Width, micros: float | None, context: int) -> None:
        """Keeps a plain round, and whether the round is one of the width in use."""
        counts = micros is not None and self._served.counts(bucket, width, micros)
        if width == 1 and counts and micros is not None:
            self._served.plain(bucket, micros - self.costs.of_context(1, context))
        self._tells = counts and state is not None and width == state.width

    def _preferred(self, bucket: int) -> list[float]:
        """Rates by width less what wider ones must gain, 0 of those that no row can use."""
        if bucket not in self._worth:
            step, ragged = self._settings.wider * bucket / 64, self._settings.ragged
            self._worth[bucket] = [
                1.0 - step * self._wider(width, bucket) - ragged * isinstance(width, Ragged) for width in self.widths
            ]
        rates = self._useful_rates(bucket, self._context)
        return [rate * worth for rate, worth in zip(rates, self._worth[bucket], strict=True)]

    def _wider(self, width: Width, bucket: int) -> int:
        """How many narrower widths there are; of chains of any lengths by what each has on average."""
        rows = width.rows / bucket if isinstance(width, Ragged) else int(width)
        return max(0, bisect_right(self._counts, rows) - 1)

    def _useful_rates(self, bucket: int, context: float) -> list[float]:
        every = zip(self.rates(bucket, context), self._useful(bucket), strict=True)
        return [rate if useful else 0.0 for rate, useful in every]

    def _state(self, bucket: int, rates: Sequence[float]) -> BucketChoice:
        best = self.widths[max(range(len(rates)), key=rates.__getitem__)]
        state = self._buckets.get(bucket)
        if state is None:
            state = self._buckets[bucket] = BucketChoice(best, gap=self._settings.probe_first)
        # No row drafts as far as the width in use any more: the best of the others replaces it.
        if not rates[self.widths.index(state.width)]:
            state.width, state.stayed, state.visit = best, 0, None
        return state

    def _better(self, state: BucketChoice, rates: Sequence[float]) -> Width | None:
        """The width to switch to, if one gains enough over the present one."""
        best = max(range(len(rates)), key=rates.__getitem__)
        current = self.widths.index(state.width)
        margin = self._settings.hysteresis / (1.0 + state.stayed / self._settings.patience)
        return self.widths[best] if best != current and rates[best] > rates[current] * (1.0 + margin) else None

    def _other(self, bucket: int, state: BucketChoice, rates: Sequence[float]) -> Width | None:
        """Another width for this round, where there is something to learn."""
        if not self._settled(bucket):
            state.recent.clear()
            if state.quiet <= self._settings.unsettled:
                return None
        current = self.widths.index(state.width)
        others = (self._trial, self._visit, self._probe)
        return next((width for other in others if (width := other(bucket, state, rates, current))), None)

    def _settled(self, bucket: int) -> bool:
        self._in_a_row = self._in_a_row + 1 if bucket == self._bucket else 1
        self._bucket = bucket
        return self._in_a_row > self._settings.settled

    def _useful(self, bucket: int) -> list[bool]:
        """Which some row can use: chains and trees up to the widest that lets one draft more than those before.

        Chains of any lengths are of use to so many rows as are neither too many nor too few for them.
        """
        rows = min(bucket, self.acceptance.rows)
        expected, most, widest = self.acceptance.expected(), [0.0, 0.0], [0, 0]
        for index, kind in enumerate(self._trees_of):
            if isinstance(self.widths[index], Ragged):
                continue
            if expected[index] > max(most[kind], kind * expected[0]) * (1.0 + 1e-9):
                most[kind], widest[kind] = expected[index], index
        return [
            rows >= self._settings.ragged_rows and width.fits(rows)
            if isinstance(width, Ragged)
            else index <= widest[kind]
            for index, (width, kind) in enumerate(zip(self.widths, self._trees_of, strict=True))
        ]

    def _trial(self, bucket: int, state: BucketChoice, rates: Sequence[float], current: int) -> Width | None:
        """A promising width with fewer than FIRST_ROUNDS served rounds in this bucket, or plain with none, if paid.

        Of near ties the choice compares costs of warm-up only for a bucket's first rounds.
        """
        if state.trials >= 2 * FIRST_ROUNDS * len(self.widths):
            return None
        bar = self._settings.close * max(rates)
        new = [
            (rate, order_of(width), width)
            for rate, width in zip(rates, self.widths, strict=True)
            if rate
            and self.costs.live_rounds(bucket, width) < (FIRST_ROUNDS if rate >= bar else int(width == 1))
            and not self._apart(width, state.width)
        ]
        # The best first: it loses least, and what others would lose may be more than the budget has.
        for rate, _, width in sorted(new, reverse=True):
            if self._pays(bucket, width, rate / rates[current]):
                state.trials += 1
                return width
        return None

    def _visit(self, bucket: int, state: BucketChoice, rates: Sequence[float], current: int) -> Width | None:
        """Begins a visit of the best width that is near and due, behind a run of the present one."""
        if len(state.recent) < RUN // 2:
            return None
        due = [
            index
            for index, width in enumerate(self.widths)
            if index != current and state.rounds >= state.due.get(width, 0)
            and (self._apart(width, state.width) or self._runs_tell(bucket, width))
        ]  # fmt: skip
        if due:
            state.scatter = scatter(state.recent)
        near = [index for index in due if self._near(state, rates, self.widths[index])]
        if not near:
            return None
        other = max(near, key=rates.__getitem__)
        width = self.widths[other]
        apart = self._apart(width, state.width)
        run = SHORT_RUN if apart else RUN
        if not (apart and state.begun < _FREE_VISITS) and not self._pays(
            bucket, width, rates[other] / rates[current], run
        ):
            return None
        state.visit = Visit(width, state.width, list(state.recent), run)
        state.begun += apart
        gap = self._settings.visit_first * run * self._settings.visit_growth ** state.visits.get(width, 0)
        state.due[width] = state.due[state.width] = state.rounds + min(gap, self._settings.visit_last)
        return state.visit.next()

    def _runs_tell(self, bucket: int, width: Width) -> bool:
        """Whether runs tell of a width of the same kind what single rounds have not."""
        return bucket >= self._settings.visit_rows and self.costs.live_rounds(bucket, width) == FIRST_ROUNDS

    def _apart(self, one: Width, other: Width) -> bool:
        """Whether one is a tree and the other a chain with drafts."""
        return isinstance(one, Tree) != isinstance(other, Tree) and 1 not in (one, other)

    def _near(self, state: BucketChoice, rates: Sequence[float], width: Width) -> bool:
        """Whether a width may be as good as the present one; of the other kind little is known before some visits."""
        rate, held = (rates[self.widths.index(one)] for one in (width, state.width))
        unknown = self._apart(width, state.width) and state.told < _FREE_VISITS
        doubt = self._settings.doubt * state.scatter if unknown else 0.0
        return rate > max(0.0, self._settings.near - doubt) * held

    def _visited(self, bucket: int, state: BucketChoice, visit: Visit, width: Width, micros: float | None) -> None:
        visit.landed(width, micros)
        if visit.ended:
            self._end(bucket, state, visit)

    def _end(self, bucket: int, state: BucketChoice, visit: Visit) -> None:
        """Learns what a visit has told, also one that other numbers of requests cut."""
        state.visit = None
        if (dearer := visit.dearer()) is not None:
            state.visits[visit.width] = state.visits.get(visit.width, 0) + 1
            state.told += self._apart(visit.width, visit.home)
            self.costs.compared(bucket, visit.width, visit.home, dearer, self._context)

    def _pays(self, bucket: int, width: Width, worth: float, rounds: int = 1) -> bool:
        """Takes from the budget what rounds should lose that are worth so much of some of the present width."""
        cost = self.costs.cost(bucket, width, self._context)
        loss = (1 if rounds == 1 else 0.5) * rounds * cost * max(0.0, 1.0 - worth)
        if self._lost + loss > self._settings.probe_budget * self._spent:
            return False
        self._lost += loss
        return True

    def _probe(self, bucket: int, state: BucketChoice, rates: Sequence[float], current: int) -> Width | None:
        if state.quiet < min(state.gap, self._settings.probe_close):
            return None
        others = [
            index
            for index, width in enumerate(self.widths)
            if index != current and rates[index] and not self._apart(width, state.width)
        ]
        if not others:
            return None
        # Mostly the next best. Every fourth time it is another width in turn, because an estimate may also be too low.
        turn, rest = divmod(state.probes, 4)
        other = others[turn % len(others)] if rest == 3 else max(others, key=rates.__getitem__)
        worth = rates[other] / rates[current]
        close = other > current and worth > self._settings.close and self._alike(other, current)
        gap = min(state.gap, self._settings.probe_close) if close else state.gap
        if state.quiet < gap or not self._pays(bucket, self.widths[other], worth):
            return None
        state.quiet = 0
        # A repeated probe does not count as a turn.
        state.probes += state.gap > 1
        state.probing = True
        return self.widths[other]

    def _alike(self, one: int, other: int) -> bool:
        """Whether both are chains or both trees: what trees add to chains changes slower than what chains accept."""
        return isinstance(self.widths[one], Tree) == isinstance(self.widths[other], Tree)

    def _probed(self, bucket: int, state: BucketChoice, width: Width, committed: int) -> None:
        """A wider probe with a gain is repeated at once; every other one makes the next wait longer."""
        state.probing = False
        rate = self.rates(bucket, self._context)[self.widths.index(state.width)]
        paid = committed > self.costs.cost(bucket, width, self._context) * rate and order_of(width) > order_of(
            state.width
        )
        state.gap = 1 if paid else min(self._settings.probe_last, max(2 * state.gap, 16))


def adaptive_policy(
    widths: Sequence[Width],
    buckets: Sequence[int],
    micros: Mapping[Cell, float],
    per_token: Mapping[Width, float] | None = None,
) -> AdaptiveWidth:
    """An adaptive policy from the costs measured at warm-up, of rounds of chains and of trees."""
    kind = max(order_of(width)[1] for width in widths)
    acceptance = (Acceptance, NodeAcceptance, Abilities)[kind](widths)
    return AdaptiveWidth(widths, CostTable(widths, buckets, micros, per_token), acceptance)
