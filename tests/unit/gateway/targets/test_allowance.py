"""Bounds of a tenant over gateways that see some of the targets each, with calls of several answers, by chance."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from services.common.request.errors import PacelineError, Reason
from services.gateway.routing.crowd import Ring
from services.gateway.targets.account import Permit
from services.gateway.targets.allowance import COUNTING, Allowance
from services.gateway.targets.messages import Standing, Use
from services.gateway.tenancy.admission import Bound, Tenant
from services.target.sessions.tally import Bounds, Granted, Tally, Used
from tests.support.virtual_time import now, virtual

CASES = 20
STEP_S = 0.01


@dataclass
class Counter:
    """A target that counts; its answers take a while, each session's in order."""

    name: str
    lag_s: float
    tally: Tally = field(default_factory=Tally)
    sessions: set[int] = field(default_factory=set)


class Line:
    """One gateway's session with a target, as a link is used here."""

    def __init__(self, counter: Counter, session: int) -> None:
        self.counter, self.session = counter, session
        self.claims = 0
        self._opened = now()
        self._reached = self._answered = 0.0
        counter.sessions.add(session)

    @property
    def open_s(self) -> float:
        return now() - self._opened

    def state(self, use: Use) -> "asyncio.Future[Standing | None]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Standing | None] = loop.create_future()
        self.claims += use.claims > 0
        self._reached = max(self._reached + 1e-6, now() + self.counter.lag_s)
        loop.call_at(self._reached, self._reach, use, answer)
        return answer

    def _reach(self, use: Use, answer: "asyncio.Future[Standing | None]") -> None:
        tally = self.counter.tally
        if use.claims:
            claimed = Granted(use.number, use.claims, use.claimed_tokens)
            found = tally.claim(self.session, use.tenant, claimed, Bounds(use.most_requests, use.most_tokens))
        else:
            found = tally.note(self.session, use.tenant, Used(use.requests, use.tokens), use.heard)
        told = Standing(use.number, found.granted, found.requests, found.tokens, len(self.counter.sessions))
        self._answered = max(self._answered + 1e-6, now() + self.counter.lag_s)
        asyncio.get_running_loop().call_at(self._answered, self._answer, answer, told)

    @staticmethod
    def _answer(answer: "asyncio.Future[Standing | None]", told: Standing) -> None:
        if not answer.done():
            answer.set_result(told)


class Pool:
    """The lines of one gateway, as a pool is used here."""

    def __init__(self, counters: Sequence[Counter], session: int) -> None:
        self.lines = {one.name: Line(one, session) for one in counters}
        self.counting = self
        self._change = object()

    def change(self) -> object:
        return self._change

    def homes(self, key: bytes, count: int) -> list[Line]:
        return [self.lines[name] for name in Ring(self.lines).nearest(key, count)]

    def lose(self, name: str) -> None:
        line = self.lines.pop(name)
        line.counter.tally.leave(line.session)
        line.counter.sessions.discard(line.session)
        self._change = object()


@dataclass
class Running:
    """Answers that run, at all gateways together."""

    bound: int
    now: int = 0
    most: int = 0
    served: int = 0
    refused: int = 0

    async def call(self, gate: Allowance, tenant: Tenant, answers: int, lasts_s: Sequence[float]) -> None:
        """Asks until it is let in."""
        while True:
            try:
                permits = await gate.enter(tenant, [4, *([0] * (answers - 1))], 8)
                break
            except PacelineError as error:
                assert error.reason is Reason.TENANT_LIMIT
                self.refused += 1
                await asyncio.sleep(8 * STEP_S)
        assert len(permits) == answers
        self.now += answers
        self.most = max(self.most, self.now)
        await asyncio.gather(*(self._run(permit, s) for permit, s in zip(permits, lasts_s, strict=True)))
        self.served += 1

    async def _run(self, permit: Permit, lasts_s: float) -> None:
        permit.begin(4)
        await asyncio.sleep(lasts_s)
        self.now -= 1
        permit.close()


@asynccontextmanager
async def gates(pools: Sequence[Pool]) -> Any:
    async with AsyncExitStack() as stack:
        made = [Allowance(cast("Any", pool), now) for pool in pools]
        for one in made:
            task = asyncio.create_task(one.follow())
            stack.callback(task.cancel)
        yield made


def views(chance: random.Random, names: Sequence[str], gateways: int) -> list[list[str]]:
    """What each gateway sees: in all fewer targets than COUNTING are missed, and each sees at least one."""
    missed = chance.sample(names, min(chance.randrange(COUNTING), len(names) - 1))
    return [[name for name in names if name not in missed or chance.random() < 0.5] for _ in range(gateways)]


@pytest.mark.parametrize("seed", range(CASES))
@virtual
async def test_a_bound_holds_over_gateways_that_do_not_see_all_targets(seed: int) -> None:
    chance = random.Random(seed)
    counters = [Counter(f"p{index}", chance.uniform(0, 2) * STEP_S) for index in range(chance.randint(1, 6))]
    seen = views(chance, [one.name for one in counters], chance.randint(2, 4))
    print(f"seed {seed}: gateways see {seen}")
    pools = [Pool([one for one in counters if one.name in some], index) for index, some in enumerate(seen)]
    running = Running(chance.randint(1, 8))
    tenant = Tenant("t", bound=Bound(running.bound, 2**62))
    async with gates(pools) as made, asyncio.timeout(600):
        calls = []
        for _ in range(20):
            answers = chance.randint(1, min(running.bound, 4))
            lasts = [chance.uniform(0, 8) * STEP_S for _ in range(answers)]
            calls.append(asyncio.create_task(running.call(chance.choice(made), tenant, answers, lasts)))
            await asyncio.sleep(chance.random() * STEP_S)
        await asyncio.gather(*calls)
    assert running.served == 20
    assert running.most <= running.bound, f"{running.most} of {running.bound}"


@virtual
async def test_the_whole_bound_is_used_where_views_differ() -> None:
    """Shares, or a place that two gateways take from one another, would leave some of it free."""
    counters = [Counter(f"p{index}", STEP_S) for index in range(3)]
    pools = [Pool([one for one in counters if one.name != f"p{index}"], index) for index in range(2)]
    running, tenant = Running(6), Tenant("t", bound=Bound(6, 2**62))
    async with gates(pools) as made, asyncio.timeout(600):
        await asyncio.gather(*(running.call(made[index % 2], tenant, 1, [0.05]) for index in range(24)))
    assert running.most == 6


@virtual
async def test_calls_of_several_answers_are_let_in_whole() -> None:
    """Three calls of three answers, a bound of four: one after another, where their first answers alone would fit."""
    counters = [Counter(f"p{index}", STEP_S) for index in range(3)]
    pools = [Pool(counters, index) for index in range(3)]
    running, tenant = Running(4), Tenant("t", bound=Bound(4, 2**62))
    async with gates(pools) as made, asyncio.timeout(600):
        await asyncio.gather(*(running.call(gate, tenant, 3, [0.01] * 3) for gate in made))
    assert (running.most, running.served) == (3, 3)


@pytest.mark.parametrize("seed", range(CASES))
@virtual
async def test_a_bound_holds_while_gateways_come(seed: int) -> None:
    """Those that are there may believe that they are alone, or that all see what they see."""
    chance = random.Random(seed)
    counters = [Counter(f"p{index}", chance.uniform(0, 2) * STEP_S) for index in range(chance.randint(1, 5))]
    seen = views(chance, [one.name for one in counters], 3)
    print(f"seed {seed}: gateways see {seen}")
    running, made = Running(chance.randint(1, 5)), list[Allowance]()
    tenant = Tenant("t", bound=Bound(running.bound, 2**62))
    async with AsyncExitStack() as stack, asyncio.timeout(600):
        calls = []
        for index, some in enumerate(seen):
            pool = Pool([one for one in counters if one.name in some], index)
            made += await stack.enter_async_context(gates([pool]))
            for _ in range(8):
                lasts = [chance.uniform(0, 1.5)]
                calls.append(asyncio.create_task(running.call(chance.choice(made), tenant, 1, lasts)))
                await asyncio.sleep(chance.uniform(0, 0.4))
        await asyncio.gather(*calls)
    assert running.most <= running.bound, f"{running.most} of {running.bound}"


@virtual
async def test_one_target_is_asked_where_all_gateways_reach_all() -> None:
    counters = [Counter(f"p{index}", 0.0) for index in range(5)]
    pools = [Pool(counters, index) for index in range(2)]
    running, tenant = Running(8), Tenant("t", bound=Bound(8, 2**62))
    async with gates(pools) as made, asyncio.timeout(600):
        await running.call(made[0], tenant, 1, [0.0])
        await asyncio.sleep(4.0)
        before = {name: line.claims for name, line in pools[0].lines.items()}
        for _ in range(20):
            await running.call(made[0], tenant, 1, [0.0])
    asked = sorted(line.claims - before[name] for name, line in pools[0].lines.items())
    assert asked == [0, 0, 0, 0, 20]


@virtual
async def test_targets_that_go_take_no_bound_along() -> None:
    counters = [Counter(f"p{index}", STEP_S) for index in range(6)]
    pools = [Pool(counters, index) for index in range(3)]
    running, tenant, chance = Running(5), Tenant("t", bound=Bound(5, 2**62)), random.Random(1)
    async with gates(pools) as made, asyncio.timeout(600):
        calls = []
        for index in range(60):
            calls.append(asyncio.create_task(running.call(made[index % 3], tenant, 1, [10 * STEP_S])))
            await asyncio.sleep(STEP_S)
            if index in (20, 40):
                (first,) = Ring(pools[0].lines).nearest(b"tenant\0t", 1)
                for pool in chance.sample(pools, 3):
                    pool.lose(first)
                    await asyncio.sleep(STEP_S)
        await asyncio.gather(*calls)
    assert running.most <= 5


@virtual
async def test_a_prompt_of_several_answers_is_used_once() -> None:
    tenant = Tenant("t", bound=None, tokens_per_minute=10_000)
    async with gates([Pool([Counter("p", 0.0)], 0)]) as (gate,):
        permits = await gate.enter(tenant, [90, 0, 0], 5)
        for index, permit in enumerate(permits):
            permit.begin(0 if index else 100)
            permit.spend(5)
            permit.close()
        total = gate.total(tenant)
    assert total is not None
    assert (total.requests, total.tokens) == (0, 115)


@virtual
async def test_answers_that_never_began_do_not_teach_what_is_expected() -> None:
    """A call of many that is refused for its length would leave the next answers without a reservation."""
    tenant = Tenant("t", bound=None, tokens_per_minute=10**9)
    async with gates([Pool([Counter("p", 0.0)], 0)]) as (gate,):
        (probe,) = await gate.enter(tenant, [0], 10**6)
        expected = probe.tokens
        probe.close()
        for _ in range(3):
            for permit in await gate.enter(tenant, [0] * 8, 10**6):
                permit.close()
        (permit,) = await gate.enter(tenant, [0], 10**6)
        assert permit.tokens == expected > 0
        permit.begin(0)
        permit.spend(10 * expected)
        permit.close()
        (taught,) = await gate.enter(tenant, [0], 10**6)
        assert taught.tokens > expected, "an answer that ran teaches"
