"""Decides what each round does: which requests are admitted, which prompt chunks run, how wide it is.

Continuous batching at round granularity over plain integers; one thread calls it. Every unit of work carries (slot,
epoch): an outcome of an epoch that has passed is counted and dropped.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter

from services.common.request.sampling import FinishReason
from services.target.cache.blocks import BlockPool
from services.target.cache.invariants import check_memory
from services.target.cache.manager import KVCacheManager
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.state_keeper import StateKeeper
from services.target.core.load import AdmissionRate, Load
from services.target.core.plan import Admission, Chunk, Commit, Move, Outcome, Plan, Progress
from services.target.core.request import Request, RequestSpec, State
from services.target.core.width import Ragged, Tree, Width
from services.target.scheduling.admission import check_possible, check_room, lifetime_tokens
from services.target.scheduling.bursts import BurstPause
from services.target.scheduling.preemption import NOBODY, Grown, grow_rows, grows_from
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.slots import SlotTable, apply_stop_conditions, stop_ids
from services.target.scheduling.turns import Turns
from services.target.scheduling.waiting import WaitingQueue, order_of
from services.target.scheduling.width.policy import WidthPolicy

_DRAFTED = attrgetter("drafted")


class Scheduler:
    """Plans rounds and commits what they brought. Not thread-safe; times are monotonic seconds given by the caller."""

    def __init__(
        self, settings: SchedulerSettings, pool: BlockPool, cache: PrefixCache | None, policy: WidthPolicy
    ) -> None:
        self._settings = settings
        self._memory = KVCacheManager(pool, cache)
        self._keeper = StateKeeper(cache, pool.block_size)
        self._pool = pool
        self._policy = policy
        self._queue = WaitingQueue()
        self._rate = AdmissionRate()
        self._roster = SlotTable(settings.slots)
        self._grows_from = grows_from(settings, pool)
        self._uids = count(1)
        self._requests: dict[int, Request] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._in_flight: deque[Plan] = deque()
        self._width_in_flight = 0
        self._number = 0
        self._busy_since: float | None = None
        self._pause = BurstPause(settings)
        self._arrived_tokens = 0
        self._turns = Turns()

    def add(self, spec: RequestSpec, session: object, now: float) -> Request:
        """Queues a request. Raises INVALID_FIELD, CONTEXT_LIMIT or OVERLOADED; then nothing has changed."""
        check_possible(spec, self._settings.context_limit, self._pool)
        check_room(spec, self._queue, self._rate, self._settings.max_waiting, self._settings.max_queued_tokens)
        uid = next(self._uids)
        limit = lifetime_tokens(spec, self._settings.context_limit)
        request = Request(
            uid=uid,
            spec=spec,
            session=session,
            arrived=now,
            limit=limit,
            grows=limit >= self._grows_from,
            stop_ids=stop_ids(spec.stopping, self._settings.eos),
            order=order_of(now, spec.priority, self._settings.ageing_s, uid),
            tokens=list(spec.token_ids),
        )
        self._memory.name(request)
        self._requests[uid] = request
        self._queue.push(request)
        self._arrived_tokens += len(spec.token_ids)
        if spec.deadline is not None:
            heappush(self._deadlines, (spec.deadline, uid))
        return request

    def cancel(self, uid: int, now: float, reason: FinishReason = FinishReason.CANCELLED) -> Request | None:
        """Ends a request in any state; None when it is unknown or has ended. Its late outcomes are dropped."""
        request = self._requests.get(uid)
        if request is not None:
            self._end(request, reason, now)
        return request

    def expire(self, now: float) -> list[Request]:
        """Ends all requests whose deadline has passed, waiting or running, and returns them."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = self.cancel(heappop(self._deadlines)[1], now, FinishReason.DEADLINE)
            if request is not None:
                expired.append(request)
        return expired

    def plan(self, now: float, speculate: bool = True) -> Plan:
        """Plans the next round, plain without `speculate` (no drafter). An empty plan is neither run nor committed."""
        live = self._unfinished()
        burst = self._is_burst(len(live))
        paused = burst and self._pauses(now)
        rows, kind = self._choose_rows(() if paused else live, speculate and not burst)
        grown = self._grow(rows, int(kind))
        # A request preempted just now must not be admitted before the rows that it made room for have grown.
        admissions = () if grown.preempted else self._admit(now)
        if admissions and not burst:
            burst = self._is_burst(len(grown.rows))
        if burst and not paused:
            paused = self._pauses(now)
        rows, kind = ((), 1) if paused or not grown.rows else (grown.rows, kind)
        chunks = self._chunks(bool(rows), burst) if self._roster.prefilling else ()
        if not rows and not chunks:
            self._busy_since = None
            return Plan(self._number, 1, (), 0, (), (), (), ())
        self._number += 1
        self._arrived_tokens = 0
        moves = self._see(rows, chunks, int(kind))
        ragged, takes = self._pieces(rows, kind)
        if not live:
            self._pause.alone(self._number, now)
        plan = Plan(
            number=self._number,
            width=int(kind),
            nodes=isinstance(kind, Tree),
            ragged=ragged,
            takes=takes,
            rows=rows,
            bucket=self._bucket(len(rows)),
            chunks=chunks,
            admissions=admissions,
            grown=grown.growths,
            released=self._roster.take_released(),
            saves=tuple(self._keeper.leaving),
            behind_prompts=bool(self._in_flight and self._in_flight[-1].chunks),
            drawn=self._roster.drawing > 0,
            context=self._roster.context(rows),
            moves=moves,
        )
        self._keeper.leaving.clear()
        self._in_flight.append(plan)
        self._width_in_flight += plan.width
        return plan

    def commit(self, plan: Plan, outcomes: Sequence[Outcome], now: float, micros: float | None = None) -> Commit:
        """Commits the outcomes of the oldest planned round.

        The width policy learns the longer of `micros`, the engine's time for the round, and the time since the last
        commit if no empty plan came between. Without `micros`, as after a fallback, it learns no cost.
        """
        self._landed(plan)
        elapsed = 0.0 if self._busy_since is None else now - self._busy_since
        self._busy_since = now
        if plan.chunks or plan.saves:
            self._remember_chunks(plan)
        width = plan.width if any(map(_DRAFTED, outcomes)) else 1
        progress, committed, discarded = self._advance_all(plan, outcomes, width, now)
        # A drafter that looks up may have had nothing: the round was as wide all the same.
        wide = width if micros is None else plan.width
        if wide > 1:
            self._tell_missed(plan, outcomes)
        if plan.rows:
            self._pause.served_at = now
        else:
            self._pause.landed(plan, now, elapsed)
        if not plan.rows or wide != plan.width:
            return Commit(progress, discarded)
        took = None if plan.chunks or micros is None else max(micros, elapsed * 1e6)
        self._policy.landed(plan.bucket, plan.kind if wide > 1 else 1, committed, took, plan.context)
        plain = self._policy.plain_micros(plan.bucket, plan.context) if wide > 1 else 0.0
        if took is None or not plain:
            return Commit(progress, discarded)
        return Commit(progress, discarded, took, plain * committed / len(plan.rows))

    def _tell_missed(self, plan: Plan, outcomes: Sequence[Outcome]) -> None:
        """Tells the policy which rows were asked for drafts and had none."""
        if all(map(_DRAFTED, outcomes)):
            return
        rows = frozenset(plan.rows)
        for outcome in outcomes:
            if outcome.drafted or outcome.slot not in rows:
                continue
            request = self._roster.at(outcome.slot, outcome.epoch)
            if request is not None and request.spec.speculation.cap != 0:
                self._policy.missed(request.uid)

    def abandon(self, plan: Plan, now: float) -> list[Request]:
        """Ends with ERROR, and returns, the requests of the oldest planned round, which failed: all of its `slots`."""
        self._landed(plan)
        # A round planned behind it may have given a slot to a request that had no part in the failed one.
        later = {admission.slot for behind in self._in_flight for admission in behind.admissions}
        failed = [one for slot in sorted(plan.slots - later) if (one := self._roster.on(slot)) is not None]
        for request in failed:
            self._end(request, FinishReason.ERROR, now)
        self._keeper.failed(plan)
        return failed

    def at(self, slot: int, epoch: int) -> Request | None:
        """The request that holds a slot in that epoch; None when the epoch has passed."""
        return self._roster.at(slot, epoch)

    def live(self) -> list[Request]:
        """All requests that have not ended, oldest first."""
        return list(self._requests.values())

    def load(self) -> Load:
        """The load as routing reads it."""
        roster, queue, pool = self._roster, self._queue, self._pool
        queued = queue.tokens + roster.prefill_left
        return Load(roster.slots - len(roster.free), queue.count, roster.slots, queued, pool.available, pool.total)

    def check(self) -> None:
        """Raises AssertionError when a block or a snapshot is lost, shared wrongly or owned twice (I7)."""
        check_memory(self._memory, self._keeper, self._roster.running(), self._in_flight)

    def _unfinished(self) -> tuple[int, ...]:
        """Rows that want a token of this round. Raises RuntimeError when too many rounds are in flight."""
        if len(self._in_flight) > self._settings.look_ahead:
            raise RuntimeError(f"{len(self._in_flight)} rounds are planned and not committed")
        return self._roster.unfinished(self._in_flight) if self._in_flight else tuple(self._roster.rows)

    def _choose_rows(self, rows: tuple[int, ...], drafts: bool) -> tuple[tuple[int, ...], Width]:
        """The rows of the round, all or those whose turn it is, and its width; with drafts the policy chooses both."""
        if not rows or not drafts:
            return rows, 1
        context = self._roster.context(rows)
        fitting = self._policy.fitting(self._settings.buckets, len(rows), context)
        if fitting < len(rows):
            rows = self._turns.take(rows, fitting)
            context = self._roster.context(rows)
        return rows, self._policy.choose(self._bucket(len(rows)), len(rows), context)

    def _pieces(self, rows: tuple[int, ...], kind: Width) -> tuple[Ragged | None, tuple[int, ...]]:
        """Of a round of chains of any lengths its width and how many tokens each row verifies; of others nothing."""
        if not isinstance(kind, Ragged):
            return None, ()
        return kind, self._policy.takes(kind, [one.uid for slot in rows if (one := self._roster.on(slot)) is not None])

    def _is_burst(self, rows: int) -> bool:
        """Whether the prompts that wait to be computed are a burst, where so many rows decode."""
        prompts = self._roster.prefilling
        return bool(prompts) and self._pause.is_burst(rows, len(prompts))

    def _pauses(self, now: float) -> bool:
        """Counts what waits for a slot too: this round may admit it, and the next one computes it."""
        waiting, arrived = (self._queue.tokens, self._arrived_tokens) if self._roster.free else (0, 0)
        return self._pause.pauses(now, self._roster.prefill_left + waiting, arrived, self._in_flight)

    def _bucket(self, rows: int) -> int:
        """The smallest captured number of rows that holds so many; 0 for none."""
        if not rows:
            return 0
        return self._settings.buckets[bisect_left(self._settings.buckets, rows)]

    def _landed(self, plan: Plan) -> None:
        if not self._in_flight or self._in_flight[0] is not plan:
            raise RuntimeError(f"round {plan.number} is not the oldest one that was planned")
        self._in_flight.popleft()
        self._width_in_flight -= plan.width
        self._pool.fence(plan.number)

    def _admit(self, now: float) -> tuple[Admission, ...]:
        """Admits the queue's head while a slot and its `_reserved` blocks are free; nobody overtakes the head."""
        if not self._queue.count:
            return ()
        admissions: list[Admission] = []
        # Leave each row that grows a block, so that an admission preempts no request in the next round.
        spare = self._roster.growing()
        while self._roster.free and (request := self._queue.head()) is not None:
            if not self._memory.admit(request, self._reserved(request), spare):
                break
            self._queue.pop()
            slot = self._roster.seat(request)
            if request.admitted is None:
                request.admitted = now
                self._rate.admitted(now)
            held = tuple(request.blocks), request.cached_tokens, request.snapshot
            admissions.append(Admission(slot, request.epoch, request.present_spec(), *held))
        return tuple(admissions)

    def _reserved(self, request: Request) -> int:
        """Tokens to reserve blocks for when a request is admitted: its whole life's, or its first rounds'."""
        if not request.grows:
            return request.limit
        return min(
            request.limit,
            len(request.tokens) + (self._settings.look_ahead + 1) * max(map(int, self._policy.widths)),
        )

    def _chunks(self, rows: bool, burst: bool) -> tuple[Chunk, ...]:
        chunks, complete = self._roster.chunks(self._settings.prompt_tokens(rows, burst), self._settings.segment)
        for request in complete:
            self._policy.join(request.uid, request.spec.speculation.cap, request.limit - len(request.tokens) - 1)
            self._turns.join(request)
        return self._keeper.after(chunks, [self._roster.on(chunk.slot) for chunk in chunks])

    def _see(self, rows: tuple[int, ...], chunks: tuple[Chunk, ...], width: int) -> tuple[Move, ...]:
        """Gives places to what this round's rows see and write in layers with a window, and takes all others."""
        windows = self._pool.windows
        if windows is None:
            return ()
        pieces: dict[int, tuple[int, int]] = {}
        for chunk in chunks:  # of one slot there may be two
            start, _ = pieces.get(chunk.slot, (chunk.start, 0))
            pieces[chunk.slot] = start, chunk.start + len(chunk.token_ids)
        for slot, (start, end) in pieces.items():
            request = self._roster.on(slot)
            assert request is not None, "a chunk belongs to a request"
            windows.see(request, start, end)
        for slot in rows:
            request = self._roster.on(slot)
            assert request is not None, "a row belongs to a request"
            end = min(request.limit, request.computed + self._width_in_flight + width)
            windows.see(request, request.computed, end)
        return windows.take_moves()

    def _grow(self, rows: tuple[int, ...], width: int) -> Grown:
        if self._grows_from == NOBODY:
            return Grown(rows, (), 0)
        return grow_rows(self._roster, rows, self._memory, self._width_in_flight + width, self._preempt)

    def _preempt(self, request: Request) -> None:
        """Puts a request back into the queue; its committed tokens stay, and are prefilled again with its prompt."""
        self._leave(request)
        request.state = State.WAITING
        request.preemptions += 1
        self._queue.push(request)

    def _remember_chunks(self, plan: Plan) -> None:
        """Names the blocks that the round's prompts filled, so that later requests may hit them."""
        for chunk in plan.chunks:
            request = self._roster.at(chunk.slot, chunk.epoch)
            if request is not None:
                self._memory.remember(request, chunk.start + len(chunk.token_ids))
        self._keeper.landed(plan)

    def _advance_all(
        self, plan: Plan, outcomes: Sequence[Outcome], width: int, now: float
    ) -> tuple[tuple[Progress, ...], int, int]:
        """The progress of every request, tokens that rows committed, and tokens of epochs that have passed."""
        decoding = frozenset(plan.rows)
        progress: list[Progress] = []
        committed = discarded = 0
        for outcome in outcomes:
            request = self._roster.at(outcome.slot, outcome.epoch)
            if request is None:
                discarded += len(outcome.tokens)
            else:
                news = self._advance(request, outcome, width if outcome.slot in decoding else 0, now)
                committed += len(news.tokens) if news.width else 0
                progress.append(news)
        return tuple(progress), committed, discarded

    def _advance(self, request: Request, outcome: Outcome, width: int, now: float) -> Progress:
        """Commits the tokens of one outcome; `width` is that of `Progress`."""
        position = request.generated
        room = self._settings.context_limit - len(request.tokens)
        kept, end = apply_stop_conditions(outcome.tokens, position, request.spec.stopping, request.stop_ids, room)
        end = end or outcome.end
        tokens = outcome.tokens[:kept]
        request.tokens += tokens
        request.verified, request.computed = request.computed, len(request.tokens) - 1
        self._memory.remember(request, request.computed)
        if request.first_token is None and tokens:
            request.first_token = now
        accepted = outcome.accepted if outcome.accepted < kept else max(kept - 1, 0)
        if width:
            request.stats.add(width, outcome.drafted, accepted)
            ended = end is not None
            self._policy.observe(request.uid, outcome.drafted, accepted, ended, outcome.path, outcome.trunk)
        if end is not None:
            self._end(request, end, now)
        logprobs = outcome.logprobs[:kept] if outcome.logprobs is not None else None
        path, children = outcome.path[:accepted], outcome.children[:accepted]
        return Progress(request, position, tokens, logprobs, accepted, outcome.drafted, width, end, path, children)

    def _end(self, request: Request, reason: FinishReason, now: float) -> None:
        del self._requests[request.uid]
        if request.state is State.WAITING:
            self._queue.left(request)
        else:
            self._leave(request)
        request.state, request.end, request.ended = State.ENDED, reason, now

    def _leave(self, request: Request) -> None:
        """Takes the slot and the blocks from a request. The new epoch makes outcomes of rounds in flight stale."""
        if request.state is State.DECODE:
            self._policy.leave(request.uid)
            self._turns.leave(request.uid)
        self._keeper.leave(request, self._in_flight)
        self._roster.vacate(request)
        self._memory.release(request, self._number)
