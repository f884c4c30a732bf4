"""Idempotency keys while the fleet changes: a duplicate is refused wherever its request runs by then.

Every test runs twenty keys at once through one gateway and sends their duplicates through that one and another.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import Code, Reason, overloaded
from services.target.engine.idempotency import KeyStore
from tests.integration.gateway_stack import Answer, Harness, ask_for, harness, rich
from tests.integration.test_gateway_faults import ready
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget

KEYS = [f"key-{number}" for number in range(20)]
TOKENS, STEP = 300, 40


def fake(index: int) -> FakeTarget:
    return FakeTarget(f"pair-{index}", pace_s=0.008, slots=64, keys=KeyStore())


def asked(key: str, tokens: int = TOKENS) -> inference_pb2.GenerateRequest:
    return ask_for(max_tokens=tokens, seed=KEYS.index(key), idempotency_key=key)


@asynccontextmanager
async def gateways(folder: Path, targets: list[FakeTarget], live: int) -> AsyncIterator[tuple[Harness, Harness]]:
    """Two gateways that know the addresses of all targets, of which the first `live` are there."""
    addresses = tuple([await each.start() for each in targets])
    for each in targets[live:]:
        await each.die()
    try:
        async with (
            harness(folder, [], targets=addresses, drain_grace_s=0.0) as one,
            harness(folder, [], targets=addresses, drain_grace_s=0.0) as other,
        ):
            await asyncio.gather(ready(one, live), ready(other, live))
            yield one, other
    finally:
        for each in targets:
            await each.stop()


class Firsts:
    """The first request of every key, through one gateway; they go on when told to, however long a duplicate takes."""

    def __init__(self, gateway: Harness, targets: list[FakeTarget]) -> None:
        self._targets, self._most = targets, 0
        self._more()
        self.answers = {key: Answer() for key in KEYS}
        self._tasks = [
            asyncio.create_task(gateway.ask(asked(key), into=answer)) for key, answer in self.answers.items()
        ]

    def _more(self) -> None:
        self._most += STEP
        for target in self._targets:
            target.hold(self._most)

    async def advance(self) -> None:
        """Waits until every stream has got more tokens."""
        seen = {key: len(answer.tokens) for key, answer in self.answers.items()}
        self._more()
        await until(lambda: all(len(self.answers[key].tokens) > count for key, count in seen.items()))

    async def complete(self) -> None:
        """No stream ends before its last token."""
        for target in self._targets:
            target.go_on()
        await asyncio.gather(*self._tasks)
        assert all(len(answer.tokens) == TOKENS for answer in self.answers.values())


async def refused(*through: Harness) -> None:
    """The duplicate of every key is refused by each gateway."""
    calls = [gateway.ask(asked(key, 2)) for gateway in through for key in KEYS]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, grpc.aio.AioRpcError), outcome
        assert (rich(outcome).code, rich(outcome).reason) == (Code.ALREADY_EXISTS, Reason.DUPLICATE)


async def test_a_duplicate_is_refused_after_a_target_joined(tmp_path: Path) -> None:
    targets = [fake(0), fake(1)]
    async with gateways(tmp_path, targets, live=1) as (one, other):
        firsts = Firsts(one, targets)
        await firsts.advance()
        await targets[1].start()
        await asyncio.gather(ready(one, 2), ready(other, 2))
        await refused(one, other)
        await firsts.complete()
        assert not targets[1].starts


async def test_a_duplicate_is_refused_while_a_target_drains_and_after(tmp_path: Path) -> None:
    targets = [fake(0), fake(1)]
    async with gateways(tmp_path, targets, live=2) as (one, other):
        firsts = Firsts(one, targets)
        await firsts.advance()
        assert all(target.active for target in targets)
        targets[0].drain()
        await refused(one, other)
        await firsts.advance()
        await targets[0].die()
        await refused(one, other)
        await firsts.complete()
        resumed = [start for start in targets[1].starts if start.resumed]
        assert len(resumed) == len({start.idempotency_key for start in targets[0].starts}) > 0


async def test_a_duplicate_is_refused_after_a_target_restarted_under_its_id(tmp_path: Path) -> None:
    targets = [fake(0), fake(1)]
    async with gateways(tmp_path, targets, live=2) as (one, other):
        firsts = Firsts(one, targets)
        await firsts.advance()
        await targets[0].die()
        await refused(one)
        await firsts.advance()
        targets[0].keys = KeyStore()
        await targets[0].start()
        await asyncio.gather(ready(one, 2), ready(other, 2))
        await refused(one, other)
        await firsts.complete()


async def test_a_duplicate_is_refused_after_the_only_target_restarted(tmp_path: Path) -> None:
    target = fake(0)
    async with gateways(tmp_path, [target], live=1) as (one, other):
        firsts = Firsts(one, [target])
        await firsts.advance()
        await target.die()
        await refused(one)
        target.keys = KeyStore()
        await target.start()
        await firsts.advance()
        await refused(one, other)
        await firsts.complete()


async def test_a_duplicate_is_refused_by_a_target_that_refused_the_first_before(tmp_path: Path) -> None:
    targets = [fake(0), fake(1)]
    async with gateways(tmp_path, targets, live=2) as (one, other):
        for target in targets:
            target.refuse = overloaded("full", 0.01)
        firsts = Firsts(one, targets)
        await until(lambda: all(len(target.starts) >= len(KEYS) for target in targets))
        for target in targets:
            target.refuse = None
        await firsts.advance()
        await refused(one, other)
        await firsts.complete()
        assert all(start.idempotency_key for target in targets for start in target.starts)


@pytest.mark.parametrize("drains", [True, False])
async def test_a_duplicate_is_refused_after_the_target_left_on_which_its_request_had_ended(
    tmp_path: Path, drains: bool
) -> None:
    """By a gateway, too, that did not serve the first one; also when the target is back and knows nothing."""
    targets = [fake(0), fake(1)]
    async with gateways(tmp_path, targets, live=2) as (one, other):
        for answer in await asyncio.gather(*(one.ask(asked(key, 2)) for key in KEYS)):
            assert answer.final is not None
        await until(lambda: sum(len(target.kept) for target in targets) == len(KEYS))
        assert all(target.starts for target in targets)
        if drains:
            targets[0].drain()
            await refused(one, other)
        await targets[0].die()
        await refused(one, other)
        await begin_anew(targets[0])
        await asyncio.gather(ready(one, 2), ready(other, 2))
        await refused(one, other)


async def test_a_key_whose_request_gave_no_answer_is_kept_by_nobody(tmp_path: Path) -> None:
    """Its client left before the end."""
    targets = [fake(0), fake(1)]
    async with gateways(tmp_path, targets, live=2) as (one, _):
        for target in targets:
            target.hold(1)
        first = one.stub.Generate(asked(KEYS[0]))
        await until(lambda: any(target.committed for target in targets))
        first.cancel()
        await until(lambda: not any(target.active for target in targets))
        for target in targets:
            target.keys = KeyStore()
            target.go_on()
        assert (await one.ask(asked(KEYS[0], 2))).final is not None


async def begin_anew(target: FakeTarget) -> None:
    """Starts a target that knows no key."""
    target.keys = KeyStore()
    await target.start()


async def test_a_target_that_cannot_answer_is_not_asked(tmp_path: Path) -> None:
    """One of the version before would end its session at a frame that it does not know."""
    targets = [FakeTarget("pair-0"), FakeTarget("pair-1")]
    async with gateways(tmp_path, targets, live=2) as (one, _):
        assert (await one.ask(asked(KEYS[0], 2))).final is not None
