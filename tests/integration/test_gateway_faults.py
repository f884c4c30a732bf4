"""Targets that die, drain, stall, refuse or come late, and clients that do not read."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc, types_pb2
from services.common.request.errors import Code, PacelineError, Reason, overloaded
from services.common.request.limits import PROTOCOL_VERSION
from tests.integration.gateway_stack import WAIT_S, Answer, Harness, ask_for, harness, rich
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.metrics import value_of
from tests.support.ports import free_port

TOKENS = 300


def pair(**fields: Any) -> list[FakeTarget]:
    return [FakeTarget(f"pair-{index}", pace_s=0.01, **fields) for index in range(2)]


async def expected(one: Harness, requests: int) -> list[list[int]]:
    """Tokens of a fault-free run."""
    asked = [one.ask(ask_for(max_tokens=TOKENS, seed=seed)) for seed in range(requests)]
    return [answer.tokens for answer in await asyncio.gather(*asked)]


async def running(
    one: Harness, requests: int, among: Sequence[FakeTarget] = (), **fields: Any
) -> list[asyncio.Task[Answer]]:
    """Streams that have begun on all targets, or on those told, and of which none has gone far."""
    answers = [Answer() for _ in range(requests)]
    for target in one.targets:
        target.hold(1)
    tasks = [
        asyncio.create_task(one.ask(ask_for(max_tokens=TOKENS, seed=seed, **fields), into=into))
        for seed, into in enumerate(answers)
    ]
    await until(lambda: all(into.tokens for into in answers))
    assert all(target.active for target in among or one.targets)
    for target in one.targets:
        target.go_on()
    return tasks


async def ready(one: Harness, targets: int) -> None:
    await until(lambda: value_of(one.app.metrics.gateway_ready_targets) == targets)


async def test_streams_of_a_target_that_dies_go_on_with_the_same_text(tmp_path: Path) -> None:
    async with harness(tmp_path, pair(slots=16)) as one:
        await ready(one, 2)
        wanted = await expected(one, 8)
        tasks = await running(one, 8)
        moved = one.targets[0].active
        await one.targets[0].die()
        answers = await asyncio.gather(*tasks)
        assert [answer.tokens for answer in answers] == wanted
        finals = [answer.final for answer in answers if answer.final is not None]
        assert sum(final.usage.migrations for final in finals) == moved > 0
        assert value_of(one.app.metrics.gateway_migrations["lost"]) == moved
        for final in finals:
            histogram = final.speculation.accepted_histogram
            first_tokens = 1 + final.usage.migrations
            assert first_tokens + sum((accepted + 1) * count for accepted, count in enumerate(histogram)) == TOKENS
        resumed = [start for start in one.targets[1].starts if len(start.token_ids) > start.prompt_length]
        assert len(resumed) == moved


async def test_streams_of_a_target_that_drains_move_with_the_same_text(tmp_path: Path) -> None:
    async with harness(tmp_path, pair(slots=16)) as one:
        await ready(one, 2)
        wanted = await expected(one, 6)
        tasks = await running(one, 6)
        moved = one.targets[1].active
        one.targets[1].drain()
        answers = await asyncio.gather(*tasks)
        assert [answer.tokens for answer in answers] == wanted
        assert value_of(one.app.metrics.gateway_migrations["drain"]) == moved > 0
        await ready(one, 1)
        delivered = value_of(one.app.metrics.gateway_delivered_tokens)
        assert delivered == sum(target.committed for target in one.targets)


async def test_a_silent_target_is_found_and_its_streams_move(tmp_path: Path) -> None:
    async with harness(tmp_path, pair(slots=16)) as one:
        await ready(one, 2)
        wanted = await expected(one, 4)
        tasks = await running(one, 4)
        one.targets[0].stall()
        answers = await asyncio.gather(*tasks)
        assert [answer.tokens for answer in answers] == wanted
        one.targets[0].resume()
        await ready(one, 2)


async def test_a_slow_target_raises_no_false_alarm(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.01)]) as one:
        await ready(one, 1)
        one.targets[0].slow(1.2)
        answer = await one.ask(ask_for(max_tokens=4))
        assert answer.final is not None
        assert answer.final.usage.migrations == 0


async def test_without_migration_a_lost_target_is_a_typed_error(tmp_path: Path) -> None:
    async with harness(tmp_path, pair(slots=16)) as one:
        await ready(one, 2)
        tasks = await running(one, 4, migration=False)
        await one.targets[0].die()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
        assert errors
        assert all(rich(error).reason is Reason.TARGET_LOST for error in errors)
        assert len(errors) < 4


async def test_a_request_waits_for_the_only_target_to_come_back(tmp_path: Path) -> None:
    first = FakeTarget(pace_s=0.01)
    async with harness(tmp_path, [first]) as one:
        wanted = (await expected(one, 1))[0]
        task = asyncio.create_task(one.ask(ask_for(max_tokens=TOKENS, seed=0)))
        await until(lambda: first.active and first.committed > TOKENS + 20)
        await first.die()
        second = FakeTarget(pace_s=0.01, port=first.port)
        await second.start()
        try:
            answer = await task
            assert answer.tokens == wanted
            assert 0 < second.committed < TOKENS
        finally:
            await second.stop()


async def test_a_target_that_comes_back_is_logged_as_its_loss_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(message: str) -> list[int]:
        return [record.levelno for record in caplog.records if record.getMessage() == message]

    caplog.set_level(logging.DEBUG, "services.gateway.targets.link")
    (only,) = targets = [FakeTarget("pair-0", pace_s=0.01)]
    async with harness(tmp_path, targets) as one:
        await ready(one, 1)
        assert told("target reached")
        assert not told("target lost")
        await only.die()
        await until(lambda: bool(told("target lost")))
        assert not told("target reached again")
        await only.start()
        await until(lambda: bool(told("target reached again")))
        assert told("target reached again") == [max(told("target lost"))] == [logging.WARNING]


async def test_a_target_that_was_asked_to_end_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It drains, it leaves, and its successor at the same address is reached."""
    caplog.set_level(logging.DEBUG, "services.gateway.targets.link")
    (only,) = targets = [FakeTarget("pair-0", pace_s=0.01)]
    async with harness(tmp_path, targets) as one:
        await ready(one, 1)
        only.drain()
        await until(lambda: any(record.getMessage() == "target drains" for record in caplog.records))
        await only.die()
        await until(lambda: any(record.getMessage() == "target left" for record in caplog.records))
        successor = FakeTarget("pair-0", pace_s=0.01, port=only.port)
        await successor.start()
        try:
            await until(lambda: any(record.getMessage() == "target reached again" for record in caplog.records))
        finally:
            told = [(record.getMessage(), record.levelno) for record in caplog.records]
            await successor.stop()
    assert max(level for _, level in told) == logging.INFO, told
    assert "target lost" not in dict(told)


async def test_no_target_is_a_typed_error_after_the_wait(tmp_path: Path) -> None:
    async with harness(tmp_path, [], targets=("127.0.0.1:1",), wait_target_s=0.3) as one:
        with pytest.raises(grpc.aio.AioRpcError) as none:
            await one.ask(ask_for())
        assert (rich(none.value).code, rich(none.value).reason) == (Code.UNAVAILABLE, Reason.NO_TARGET)
        assert not one.app.ready
    async with harness(tmp_path, [FakeTarget("a", slots=1)]) as one:
        await one.ask(ask_for())
        await one.targets[0].die()
        await ready(one, 0)
        late = ask_for()
        late.timeout.FromMilliseconds(300)
        with pytest.raises(grpc.aio.AioRpcError) as passed:
            await one.ask(late)
        assert rich(passed.value).reason is Reason.DEADLINE


async def test_overload_is_refused_with_the_time_to_retry(tmp_path: Path) -> None:
    async with harness(tmp_path, max_requests=2, max_queued_tokens=64) as one:
        one.targets[0].hold()
        tasks = [asyncio.create_task(one.ask(ask_for(max_tokens=300))) for _ in range(2)]
        await until(lambda: one.targets[0].active == 2)
        with pytest.raises(grpc.aio.AioRpcError) as full:
            await one.ask(ask_for())
        error = rich(full.value)
        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, Reason.OVERLOADED)
        assert error.retry_after_s > 0
        assert value_of(one.app.metrics.gateway_rejects["OVERLOADED"]) == 1
        assert len(one.targets[0].starts) == 2
        one.targets[0].go_on()
        await asyncio.gather(*tasks)
        assert (await one.ask(ask_for())).final is not None


async def test_a_full_target_passes_the_request_on_and_a_full_fleet_says_when(tmp_path: Path) -> None:
    targets = pair()
    targets[0].refuse = overloaded("full", 0.01)
    async with harness(tmp_path, targets, attempts=3) as one:
        await ready(one, 2)
        for seed in range(64):
            assert (await one.ask(ask_for(seed=seed))).final is not None
            if targets[0].starts:
                break
        assert targets[0].starts, "each request goes to either target by chance first"
        targets[1].refuse = overloaded("full", 0.25)
        with pytest.raises(grpc.aio.AioRpcError) as full:
            await one.ask(ask_for())
        assert rich(full.value).reason is Reason.OVERLOADED
        assert rich(full.value).retry_after_s > 0


async def test_a_targets_refusal_reaches_the_client_as_it_is(tmp_path: Path) -> None:
    target = FakeTarget()
    target.refuse = PacelineError(Code.ALREADY_EXISTS, Reason.DUPLICATE, "the key is in use", "idempotency_key")
    async with harness(tmp_path, [target]) as one:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await one.ask(ask_for(idempotency_key="k"))
        error = rich(refused.value)
        assert (error.code, error.reason, error.field) == (Code.ALREADY_EXISTS, Reason.DUPLICATE, "idempotency_key")


async def test_equal_idempotency_keys_meet_on_one_target(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(f"pair-{index}") for index in range(4)]) as one:
        await ready(one, 4)
        for key in ("a", "b", "c", "d", "e"):
            for seed in range(4):
                await one.ask(ask_for(max_tokens=2, seed=seed, idempotency_key=key))
            holders = [t for t in one.targets if any(start.idempotency_key == key for start in t.starts)]
            assert len(holders) == 1


async def test_a_client_that_does_not_read_costs_its_own_stream_only(tmp_path: Path) -> None:
    target = FakeTarget(pace_s=0.002, context_limit=200_000)
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
    async with harness(tmp_path, [target], client_options=narrow, outbox_tokens=512) as one:
        stalled = one.stub.Generate(ask_for(max_tokens=100_000, logprobs=20), timeout=WAIT_S)
        await stalled.read()
        neighbour = await one.ask(ask_for(max_tokens=300, seed=9))
        assert len(neighbour.tokens) == 300
        await until(lambda: target.cancels)
        assert target.cancels[0].reason == "slow_client"
        assert value_of(one.app.metrics.gateway_slow_clients) == 1
        with pytest.raises(grpc.aio.AioRpcError) as slow:
            while await stalled.read() is not grpc.aio.EOF:
                pass
        assert rich(slow.value).reason is Reason.SLOW_CLIENT
        await until(lambda: value_of(one.app.metrics.gateway_inflight_requests) == 0)


class FleetFake(fleet_pb2_grpc.FleetServiceServicer):
    """Tells the pairs it is given."""

    def __init__(self, pairs: list[fleet_pb2.Pair]) -> None:
        self.pairs = pairs
        self.changed = asyncio.Event()

    async def Watch(self, request: Any, context: Any) -> Any:
        version = 0
        while True:
            version += 1
            yield fleet_pb2.WatchResponse(protocol_version=PROTOCOL_VERSION, version=version, pairs=self.pairs)
            self.changed.clear()
            await self.changed.wait()


async def test_pairs_come_and_go_by_watch_and_a_lost_controller_leaves_them(tmp_path: Path) -> None:
    targets = pair()
    listed = [
        fleet_pb2.Pair(pair_id=target.pair_id, target_address=await target.start(), state=fleet_pb2.PAIR_STATE_READY)
        for target in targets
    ]
    fleet, server = FleetFake(listed[:1]), grpc.aio.server()
    fleet_pb2_grpc.add_FleetServiceServicer_to_server(fleet, server)
    port = free_port()
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    async with harness(tmp_path, [], targets=(), watch=(f"127.0.0.1:{port}",)) as one:
        await ready(one, 1)
        fleet.pairs = listed
        fleet.changed.set()
        await ready(one, 2)
        fleet.pairs = listed[1:]
        fleet.changed.set()
        await ready(one, 1)
        await one.ask(ask_for())
        assert not targets[0].starts
        await server.stop(0)
        await until(lambda: value_of(one.app.metrics.gateway_fleet_sources["stale"]) == 1)
        assert (await one.ask(ask_for())).final is not None
        assert len(targets[1].starts) == 2
    for target in targets:
        await target.stop()


async def test_a_name_and_a_list_that_lead_to_one_target_count_it_once(tmp_path: Path) -> None:
    target = FakeTarget()
    port = (await target.start()).rpartition(":")[2]
    addresses = (f"127.0.0.1:{port}", f"localhost:{port}")
    async with harness(tmp_path, [], targets=addresses, dns=f"localhost:{port}") as one:
        await ready(one, 1)
        assert value_of(one.app.metrics.gateway_known_pairs) >= 2
        assert (await one.ask(ask_for())).final is not None
        assert value_of(one.app.metrics.gateway_ready_targets) == 1
    await target.stop()


async def test_a_request_continues_only_where_the_same_model_runs(tmp_path: Path) -> None:
    targets = [FakeTarget("a", pace_s=0.01), FakeTarget("b", pace_s=0.01, revision="other")]
    async with harness(tmp_path, targets, wait_target_s=1.0) as one:
        await ready(one, 2)
        tasks = await running(one, 8)
        await targets[0].die()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
        assert errors
        assert all(rich(error).reason is Reason.NO_TARGET for error in errors)
        assert all(len(start.token_ids) == start.prompt_length for start in targets[1].starts)


async def test_draining_lets_streams_finish(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.005)], drain_grace_s=WAIT_S) as one:
        task = asyncio.create_task(one.ask(ask_for(max_tokens=200)))
        await until(lambda: one.targets[0].active)
        await one.app.drain()
        answer = await task
        assert answer.final is not None
        assert answer.final.finish_reason == types_pb2.FINISH_REASON_LENGTH
