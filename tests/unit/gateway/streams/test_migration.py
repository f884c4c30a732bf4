"""A request over several targets: each position once, statistics summed, attempts bounded."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Code, PacelineError, Reason, overloaded
from services.common.request.sampling import FinishReason, SamplingParams, SpeculationParams, StopParams
from services.gateway.routing.routed_request import RoutedRequest
from services.gateway.streams.journey import JourneySettings
from services.gateway.streams.migration import MigratingRequest
from services.gateway.targets.attempt import Attempt, Outbox
from services.gateway.targets.messages import Arithmetic, Finished, Lost, Moved, Refused, Speculation, Update, Usage
from services.gateway.targets.pool import Pool
from services.gateway.tenancy.admission import Tenant
from tests.support.metrics import value_of

TEXT = tuple(range(100, 120))
JOB = RoutedRequest(
    request_id="r", model="m", tenant=Tenant("t", b"salt"), prompt=(1, 2, 3), sampling=SamplingParams(seed=9),
    stopping=StopParams(len(TEXT)), speculation=SpeculationParams(), logprobs=None, priority=0,
    deadline=time.monotonic() + 1e6, key="", migration=True, traceparent="",
)  # fmt: skip
Script = Callable[[int], list[tuple[int, Update]]]


def tokens(first: int, last: int, end: Any = None) -> Update:
    """A round that drafted seven, of which all but the last of its tokens were taken."""
    return Update(first, TEXT[first:last], end=end, drafted=7, accepted=last - first - 1)


def stats(rounds: int) -> Speculation:
    return Speculation(rounds, 3 * rounds, rounds, Counter({1: rounds}), Counter({4: rounds}))


class FakePool:
    """Hands out links that play one script each; a script maps the tokens committed before to updates."""

    def __init__(self, *scripts: Script, numerics: Sequence[str] = ()) -> None:
        self.scripts = list(scripts)
        self.numerics = [*numerics]
        self.origins: list[Arithmetic | None] = []
        self.starts: list[tuple[str, list[int]]] = []
        self.asked: list[str] = []
        self.held = False
        self.avoided: list[set[str]] = []
        self.cancels: list[tuple[int, str]] = []

    async def place(
        self, model: str, digests: Sequence[bytes], key: str, avoid: Collection[str], origin: Any, wait_s: float
    ) -> Any:
        self.avoided.append(set(avoid))
        self.origins.append(origin)
        name = f"p{len(self.starts)}"
        numerics = self.numerics.pop(0) if self.numerics else ""
        told = SimpleNamespace(arithmetic=Arithmetic("r", numerics), revision="r")

        def start(job: RoutedRequest, committed: list[int], timeout_s: float, outbox: Outbox) -> Attempt:
            self.starts.append((name, [*committed]))
            attempt = Attempt(name, len(committed), outbox, lambda _, kept, why: self.cancels.append((kept, why)))
            for epoch, update in self.scripts.pop(0)(len(committed)):
                attempt.deliver(epoch, update)
            return attempt

        return SimpleNamespace(pair_id=name, model=told, start=start)

    async def ask_others(self, chosen: Any, job: RoutedRequest) -> None:
        self.asked.append(chosen.pair_id)
        if self.held:
            raise PacelineError(Code.ALREADY_EXISTS, Reason.DUPLICATE, "held")


def journey(pool: FakePool, job: RoutedRequest = JOB, attempts: int = 4) -> MigratingRequest:
    metrics = GatewayMetrics(CollectorRegistry(), "m")
    settings = JourneySettings(attempts=attempts, wait_target_s=1.0, outbox_tokens=1000)
    return MigratingRequest(job, cast("Pool", pool), settings, metrics, lambda: None)


async def read(one: MigratingRequest) -> tuple[list[int], Finished]:
    got: list[int] = []
    while True:
        update = await one.next()
        if update.token_ids:
            assert update.position == len(got)
        got += update.token_ids
        if update.end is not None:
            assert isinstance(update.end, Finished)
            return got, update.end


def finishing(rounds: int) -> Script:
    return lambda done: [(1, tokens(done, 20, Finished(FinishReason.LENGTH, Usage(0, 1.0, 2.0, 3.0), stats(rounds))))]


async def test_lost_and_moved_requests_go_on_where_they_were() -> None:
    pool = FakePool(
        lambda done: [(1, tokens(0, 1)), (1, tokens(1, 4)), (1, Update(4, end=Lost("gone")))],
        lambda done: [(1, tokens(4, 9)), (1, Update(9, end=Moved(Usage(5, 1.0, 1.0, 1.0), stats(2))))],
        finishing(3),
    )
    one = journey(pool)
    got, end = await read(one)
    assert tuple(got) == TEXT
    assert end.reason is FinishReason.LENGTH
    assert [committed for _, committed in pool.starts] == [[], [*TEXT[:4]], [*TEXT[:9]]]
    assert pool.avoided == [set(), {"p0"}, {"p1"}]
    totals = one.totals
    assert totals.migrations == 2
    # The lost target was seen to accept two of seven drafts in one round after the token of its prefill.
    assert totals.speculation.rounds == 1 + 2 + 3
    assert totals.speculation.accepted == 2 + 2 + 3
    assert totals.speculation.drafted == 7 + 6 + 9
    assert totals.speculation.histogram == Counter({2: 1, 1: 5})
    assert totals.usage == Usage(0, 2.0, 3.0, 4.0)


async def test_a_tokens_position_that_does_not_follow_counts_as_a_lost_target() -> None:
    pool = FakePool(lambda done: [(1, tokens(0, 2)), (1, tokens(3, 5))], finishing(1))
    got, _ = await read(journey(pool))
    assert tuple(got) == TEXT
    assert pool.cancels == [(2, "cancel"), (2, "delivered")], "and a target that was left is told what was delivered"


async def test_news_of_an_earlier_owner_of_the_slot_is_stale() -> None:
    pool = FakePool(
        lambda done: [(2, tokens(0, 2)), (1, Update(2, (7, 7))), (2, tokens(2, 20, Finished(FinishReason.LENGTH)))]
    )
    got, _ = await read(journey(pool))
    assert tuple(got) == TEXT


async def test_attempts_are_bounded() -> None:
    lose: Script = lambda done: [(1, Update(done, end=Lost("gone")))]  # noqa: E731
    pool = FakePool(*[lose] * 9)
    with pytest.raises(PacelineError) as error:
        await read(journey(pool, attempts=4))
    assert error.value.reason is Reason.TARGET_LOST
    assert error.value.code is Code.UNAVAILABLE
    assert len(pool.starts) == 4


async def test_a_rollout_may_drain_more_targets_than_may_fail() -> None:
    leave: Script = lambda done: [(1, tokens(done, done + 2)), (1, Update(done + 2, end=Moved()))]  # noqa: E731
    one = journey(FakePool(*[leave] * 7, finishing(1)), attempts=2)
    assert tuple((await read(one))[0]) == TEXT
    assert one.totals.migrations == 7


async def test_without_migration_a_request_moves_only_before_its_first_token() -> None:
    job = replace(JOB, migration=False)
    early = FakePool(lambda done: [(1, Update(0, end=Lost("gone")))], finishing(1))
    assert tuple((await read(journey(early, job)))[0]) == TEXT
    late = FakePool(lambda done: [(1, tokens(0, 1)), (1, Update(1, end=Lost("gone")))], finishing(1))
    with pytest.raises(PacelineError) as error:
        await read(journey(late, job))
    assert error.value.reason is Reason.TARGET_LOST


async def test_a_full_target_is_left_for_another_and_other_refusals_are_final() -> None:
    full = Refused(overloaded("full", 0.001))
    pool = FakePool(lambda done: [(0, Update(0, end=full))], finishing(1))
    one = journey(pool)
    assert tuple((await read(one))[0]) == TEXT
    assert one.totals.migrations == 0
    bad = Refused(PacelineError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, "no", "token_ids"))
    with pytest.raises(PacelineError) as error:
        await read(journey(FakePool(lambda done: [(0, Update(0, end=bad))])))
    assert error.value.field == "token_ids"


async def test_a_target_that_fails_a_request_is_left_once() -> None:
    failed = Refused(PacelineError(Code.INTERNAL, Reason.INTERNAL, "the round failed"))
    fail: Script = lambda done: [(1, tokens(done, done + 3)), (1, Update(done + 3, end=failed))]  # noqa: E731
    one = journey(FakePool(fail, finishing(1)))
    assert tuple((await read(one))[0]) == TEXT
    assert one.totals.migrations == 1
    with pytest.raises(PacelineError) as error:
        await read(journey(FakePool(fail, fail, finishing(1))))
    assert error.value.reason is Reason.INTERNAL


async def test_a_target_that_dies_after_the_last_token_loses_nothing() -> None:
    pool = FakePool(lambda done: [(1, tokens(0, 20)), (1, Update(20, end=Lost("gone")))])
    got, end = await read(journey(pool))
    assert tuple(got) == TEXT
    assert end.reason is FinishReason.LENGTH


async def test_other_targets_are_asked_for_a_key_until_there_is_output() -> None:
    pool = FakePool(
        lambda done: [(0, Update(0, end=Refused(overloaded("full", 0.001))))],
        lambda done: [(1, Update(0, end=Lost("gone")))],
        lambda done: [(1, tokens(0, 4)), (1, Update(4, end=Lost("gone")))],
        finishing(1),
    )
    assert tuple((await read(journey(pool, replace(JOB, key="k"))))[0]) == TEXT
    assert pool.asked == ["p0", "p1", "p2"]
    keyless = FakePool(finishing(1))
    await read(journey(keyless))
    assert not keyless.asked


async def test_a_duplicate_is_not_started() -> None:
    pool = FakePool()
    pool.held = True
    with pytest.raises(PacelineError) as error:
        await read(journey(pool, replace(JOB, key="k")))
    assert (error.value.reason, pool.starts) == (Reason.DUPLICATE, [])


async def test_a_client_that_lacks_tokens_of_an_ended_request_has_them_discarded() -> None:
    pool = FakePool(finishing(1))
    one = journey(pool)
    await read(one)
    one.abandon(17, "cancel")
    one.abandon(17, "cancel")
    assert pool.cancels == [(17, "cancel")]


def lose_after(count: int) -> Script:
    return lambda done: [(1, tokens(done, done + count)), (1, Update(done + count, end=Lost("gone")))]


async def test_output_of_unequal_numerics_is_told_once_it_is_there() -> None:
    equal = journey(FakePool(lose_after(5), finishing(1), numerics=("x", "x")))
    await read(equal)
    assert not equal.totals.numerics_changed
    mixed = journey(FakePool(lose_after(5), lose_after(5), finishing(1), numerics=("x", "y", "x")))
    assert tuple((await read(mixed))[0]) == TEXT
    assert mixed.totals.numerics_changed
    assert value_of(mixed._metrics.gateway_numerics_changes) == 2


async def test_a_target_that_gave_no_token_changes_nothing() -> None:
    full: Script = lambda done: [(0, Update(done, end=Refused(overloaded("full", 0.001))))]  # noqa: E731
    pool = FakePool(full, lose_after(5), full, finishing(1), numerics=("x", "y", "z", "y"))
    one = journey(pool, attempts=8)
    await read(one)
    assert not one.totals.numerics_changed
    assert pool.origins == [None, None, Arithmetic("r", "y"), Arithmetic("r", "y")]
