"""GetStatus through a gateway over fake targets."""

import asyncio
import time
from pathlib import Path

import pytest

from services.common.pb.paceline.v1 import inference_pb2, target_pb2
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for, harness
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget

TENANTS = f'[[tenant]]\nname = "one"\nkey_sha256 = ["{digest("key-one")}"]\n'


def busy(pair_id: str, accepted: int) -> FakeTarget:
    target = FakeTarget(pair_id, slots=8)
    target.past = [
        target_pb2.RoundRecord(number=number, width=4, requests=2, committed=2 + accepted, accepted=accepted)
        for number in (1, 2)
    ]
    return target


async def status(one: Harness, key: str = "") -> inference_pb2.GetStatusResponse:
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    return await one.stub.GetStatus(inference_pb2.GetStatusRequest(), timeout=WAIT_S, metadata=metadata)


async def test_pairs_are_told_one_by_one_and_together(tmp_path: Path) -> None:
    async with harness(tmp_path, [busy("a", 6), busy("b", 2)]) as one:
        await until(lambda: len([link for link in one.app._pool.links if link.candidate()]) == 2)
        found = await status(one)
        assert (found.model, found.pairs, found.ready_pairs) == ("fake", 2, 2)
        first, second = found.each
        assert (first.pair_id, first.ready, first.speculating, first.proposer) == ("a", True, True, "none")
        assert first.activity.tokens_per_round == pytest.approx(4.0)
        assert second.activity.tokens_per_round == pytest.approx(2.0)
        assert found.total.tokens_per_round == pytest.approx(3.0)
        assert found.total.tokens_per_second == pytest.approx((16 + 8) / 5)
        assert dict(found.total.rounds_by_width) == {4: 4}
        assert found.total.slots == 16


async def test_a_drafter_that_comes_after_the_gateway_is_told(tmp_path: Path) -> None:
    fake = FakeTarget()
    fake.speculating = False
    async with harness(tmp_path, [fake]) as one:
        asked = inference_pb2.GetModelRequest()
        assert (await one.stub.GetModel(asked, timeout=WAIT_S)).model.proposer == "none"
        fake.info.proposer, fake.speculating = "ngram", True
        await one.ask(ask_for())
        async with asyncio.timeout(WAIT_S):
            while (await one.stub.GetModel(asked, timeout=WAIT_S)).model.proposer != "ngram":
                await asyncio.sleep(0.01)
        assert [pair.proposer for pair in (await status(one)).each] == ["ngram"]


async def test_numerics_are_told_of_each_pair(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget("a", numerics="4f1c"), FakeTarget("b")]) as one:
        await until(lambda: len([link for link in one.app._pool.links if link.candidate()]) == 2)
        assert [pair.numerics for pair in (await status(one)).each] == ["4f1c", ""]


async def test_running_requests_are_counted(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.05)]) as one:
        running = asyncio.create_task(one.ask(ask_for(max_tokens=512)))
        await until(lambda: one.targets[0].active)
        async with asyncio.timeout(WAIT_S):
            while (await status(one)).total.running != 1:
                await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_tenants_learn_totals_only(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    async with harness(tmp_path, [busy("a", 6)], tenants=str(path)) as one:
        await until(lambda: one.app.ready)
        found = await status(one, "key-one")
        assert not found.each
        assert (found.ready_pairs, found.total.slots) == (1, 8)


async def test_however_many_ask_a_target_is_asked_at_most_twice_a_second(tmp_path: Path) -> None:
    async with harness(tmp_path, [busy("a", 6)]) as one:
        await until(lambda: one.app.ready)
        began, target = time.monotonic(), one.targets[0]
        async with asyncio.timeout(WAIT_S):
            while not target.described:  # a gateway does not wait long, and a slow machine may answer later
                await asyncio.gather(*(status(one) for _ in range(20)))
        assert target.described <= 1 + 2 * (time.monotonic() - began)


async def test_a_pair_that_went_away_is_told_as_not_ready(tmp_path: Path) -> None:
    async with harness(tmp_path, [busy("a", 6)]) as one:
        await until(lambda: one.app.ready)
        await one.targets[0].stop()
        await until(lambda: not one.app.ready)
        found = await status(one)
        assert (found.pairs, found.ready_pairs, found.total.slots) == (1, 0, 0)
        assert [pair.ready for pair in found.each] == [False]
