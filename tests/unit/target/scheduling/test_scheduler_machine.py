"""Random lives of pool, scheduler and prefix cache against a simulated device; I7 after every step.

The default is a sample; --full (the nightly target) makes 2,000 runs of 60 steps.
"""

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.common.request.errors import PacelineError, Reason
from services.common.request.sampling import SamplingParams, SpeculationParams, StopParams
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.cache.windows import WindowPlaces
from services.target.core.plan import Outcome, Plan
from services.target.core.request import Request, RequestSpec, State
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.policy import WidthPolicy
from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.simulated import EOS, SimulatedRunner, unloaded_text

WIDTHS, BUCKETS, BLOCK, GRID, CONTEXT = (1, 4, 8), (1, 2, 4), 4, 8, 64
MICROS = {(bucket, width): 100.0 + 10 * width + bucket for bucket in BUCKETS for width in WIDTHS}
CHUNK = 12
COMMON = tuple(range(2, 30))


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, plans, executes, commits, cancels and loses the drafter in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.speculate = True
        self.asked: dict[int, Request] = {}
        self.planned: deque[Plan] = deque()
        self.executed: deque[tuple[Plan, tuple[Outcome, ...]]] = deque()

    @initialize(
        preemption=st.booleans(),
        open_ended=st.booleans(),
        look_ahead=st.integers(0, 2),
        cached=st.booleans(),
        blocks=st.integers(16, 40),
        snapshots=st.integers(0, 5),
        window=st.sampled_from([0, 5, 8, 22]),
        spare=st.integers(0, 30),
    )
    def start(
        self,
        preemption: bool,
        open_ended: bool,
        look_ahead: int,
        cached: bool,
        blocks: int,
        snapshots: int,
        window: int,
        spare: int,
    ) -> None:
        """Builds one of several kinds of scheduler.

        With `snapshots` the model has recurrent states, with a `window` layers that see so many tokens. These have
        places for one request, and some to `spare`.
        """
        windows = None
        if window:
            ahead = max(CHUNK, (look_ahead + 1) * WIDTHS[-1])
            least = WindowPlaces.needed(window, ahead, BLOCK)
            windows = WindowPlaces(least + spare, blocks, BLOCK, window, ahead)
        self.pool = BlockPool(blocks, BLOCK, windows)
        states = SnapshotPool(snapshots, GRID) if snapshots else None
        cache = PrefixCache(self.pool, b"model", b"drafter", states) if cached else None
        policy: WidthPolicy = adaptive_policy(WIDTHS, BUCKETS, MICROS)
        self.look_ahead = look_ahead
        self.scheduler = Scheduler(
            SchedulerSettings(
                slots=4,
                context_limit=CONTEXT,
                buckets=BUCKETS,
                chunk_tokens=CHUNK,
                max_waiting=6,
                max_queued_tokens=120,
                look_ahead=look_ahead,
                preemption=preemption,
                open_ended=open_ended,
                eos=EOS,
            ),
            self.pool,
            cache,
            policy,
        )
        self.device = SimulatedRunner(BLOCK, CONTEXT, GRID if snapshots else 0, window)

    @rule(
        shared=st.integers(0, 28),
        own=st.integers(1, 20),
        tokens=st.one_of(st.integers(1, 40), st.just(1 << 20)),
        seed=st.integers(0, 3),
        priority=st.integers(-2, 2),
        cap=st.sampled_from([None, 0, 2]),
        timeout=st.sampled_from([None, None, 5.0]),
        salt=st.sampled_from([b"a", b"b"]),
    )
    def add(
        self,
        shared: int,
        own: int,
        tokens: int,
        seed: int,
        priority: int,
        cap: int | None,
        timeout: float | None,
        salt: bytes,
    ) -> None:
        """A request arrives, often with a known beginning."""
        ids = COMMON[:shared] + tuple(30 + (seed * 7 + index) % 90 for index in range(own))
        spec = RequestSpec(
            request_id=str(len(self.asked)),
            token_ids=ids,
            prompt_length=len(ids),
            sampling=SamplingParams(temperature=0.8 if seed == 3 else 0.0, seed=seed),
            stopping=StopParams(max_tokens=tokens),
            speculation=SpeculationParams(off=cap == 0, max_draft=cap or None),
            priority=priority,
            deadline=None if timeout is None else self.now + timeout,
            salt=salt,
        )
        self._add(spec)

    def _add(self, spec: RequestSpec) -> None:
        try:
            request = self.scheduler.add(spec, None, self.now)
        except PacelineError as error:
            assert error.reason in {Reason.OVERLOADED, Reason.CONTEXT_LIMIT}
            return
        self.asked[request.uid] = request

    @precondition(lambda self: len(self.planned) + len(self.executed) <= self.look_ahead)
    @rule()
    def plan(self) -> None:
        """The host plans ahead of the device."""
        self.now += 0.05
        plan = self.scheduler.plan(self.now, self.speculate)
        assert plan.width in WIDTHS and (self.speculate or plan.width == 1)
        assert plan.prefill_tokens <= CHUNK
        if not plan.empty:
            running = (one for one in self.asked.values() if one.slot is not None)
            assert plan.drawn == any(not one.spec.sampling.greedy for one in running)
            self.planned.append(plan)

    @precondition(lambda self: self.planned)
    @rule(matched=st.integers(-1, 7))
    def execute(self, matched: int) -> None:
        """The device runs the oldest plan."""
        plan = self.planned.popleft()
        outcomes = self.device.execute(plan, matched)
        assert all(self.pool.owners(block) for block in self.device.written), "a block was free while written"
        self.executed.append((plan, outcomes))

    @precondition(lambda self: self.executed)
    @rule()
    def commit(self) -> None:
        """The host takes in the oldest result."""
        plan, outcomes = self.executed.popleft()
        for progress in self.scheduler.commit(plan, outcomes, self.now, micros=150.0).progress:
            assert progress.request.output[progress.position :] == progress.tokens

    @precondition(lambda self: len(self.planned) == 1 and not self.executed)
    @rule()
    def fail(self) -> None:
        """The device begins the only round in flight, and fails."""
        plan = self.planned.popleft()
        self.device.fail(plan)
        for request in self.scheduler.abandon(plan, self.now):
            assert request.end == "error"

    @rule(matched=st.lists(st.integers(-1, 7), min_size=1, max_size=6))
    def rounds(self, matched: list[int]) -> None:
        """Some rounds in a row, as many in flight as may be."""
        for count in matched:
            while len(self.planned) + len(self.executed) <= self.look_ahead:
                before = len(self.planned)
                self.plan()
                if len(self.planned) == before:
                    break
            if self.planned:
                self.execute(count)
                self.scheduler.check()
            if self.executed:
                self.commit()
                self.scheduler.check()

    @precondition(lambda self: self.asked)
    @rule(choice=st.integers(0, 1000))
    def ask_again(self, choice: int) -> None:
        """The same prompt comes a second time."""
        spec = list(self.asked.values())[choice % len(self.asked)].spec
        self._add(replace(spec, request_id=str(len(self.asked)), deadline=None))

    @precondition(lambda self: self.asked)
    @rule(choice=st.integers(0, 1000))
    def cancel(self, choice: int) -> None:
        """A client goes away, at any point of a round; often after its request has ended."""
        uid = list(self.asked)[choice % len(self.asked)]
        live = self.asked[uid].state is not State.ENDED
        assert (self.scheduler.cancel(uid, self.now) is not None) == live

    @rule()
    def expire(self) -> None:
        """Deadlines pass."""
        self.now += 1.0
        for request in self.scheduler.expire(self.now):
            assert request.spec.deadline is not None and request.spec.deadline <= self.now

    @rule()
    def lose_or_find_drafter(self) -> None:
        """The drafter goes or comes back."""
        self.speculate = not self.speculate

    @invariant()
    def blocks_are_conserved(self) -> None:
        """I7."""
        if hasattr(self, "scheduler"):
            self.scheduler.check()

    def teardown(self) -> None:
        """Everything ends, with the text it would have alone, and nothing leaks."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(3000):
            while self.planned:
                self.execute(2)
            while self.executed:
                self.commit()
            if not self.scheduler.live():
                break
            self.plan()
        assert not self.scheduler.live(), "some request never ended"
        self.scheduler.check()
        assert self.pool.windows is None or self.pool.windows.levels[1] == 0
        assert self.pool.owned == 0 and self.scheduler.load().waiting == 0
        for request in self.asked.values():
            text, end = unloaded_text(request.spec, CONTEXT)
            assert request.output == text[: request.generated]
            assert request.end != "length" or request.end == end


@pytest.mark.timeout(1800)
def test_blocks_are_conserved_in_random_lives(full: bool) -> None:
    """I7 and I1 hold in every life; a failure prints how to reproduce it."""
    sizes = (2000, 60) if full else (100, 40)
    run_state_machine_as_test(
        SchedulerMachine,
        settings=settings(
            max_examples=sizes[0],
            stateful_step_count=sizes[1],
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            phases=(Phase.explicit, Phase.generate),
        ),
    )
