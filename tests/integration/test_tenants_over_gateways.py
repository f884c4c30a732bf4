"""What a tenant may have holds over all gateways together: three real ones before the same targets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from services.gateway.app import GatewayApp
from services.gateway.routing.crowd import Ring
from services.gateway.settings import GatewaySettings
from services.gateway.targets import allowance
from services.gateway.targets.account import Permit
from services.gateway.targets.allowance import Allowance
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import WAIT_S
from tests.integration.http_stack import COMPLETIONS, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.http_client import Client, Reply

KEY = {"authorization": "Bearer key-one"}
TENANTS = f'[[tenant]]\nname = "one"\nkey_sha256 = ["{digest("key-one")}"]\n'
MOST = 8
AGAIN_S = 0.05
LIMIT_S = 3.0
"""A deadline that passes while a call waits."""
SEES_ALL: Sequence[set[int]] = (set(), set(), set())


@asynccontextmanager
async def fleet(
    folder: Path, bounds: str, pace_s: float = 0.002, count: int = 3, seen: Sequence[set[int]] = SEES_ALL
) -> AsyncIterator[tuple[list[Client], list[FakeTarget]]]:
    """Clients of gateways, and the targets; each gateway has `seen` some of these, without a word all."""
    path = folder / "tenants.toml"
    path.write_text(TENANTS + bounds)
    # Where none of those that count answers in half a second a gateway goes by its share: not because this is slow.
    patient = mock.patch.object(allowance, "ANSWER_S", WAIT_S)
    fakes = [FakeTarget(f"p{index}", pace_s, slots=32) for index in range(count)]
    async with AsyncExitStack() as stack:
        stack.enter_context(patient)
        addresses = []
        for fake in fakes:
            addresses.append(await fake.start())
            stack.push_async_callback(fake.stop)
        clients = []
        for index, some in enumerate(seen):
            mine = tuple(addresses[one] for one in sorted(some or range(count)))
            settings = GatewaySettings(
                tokenizer=str(write_tokenizer(folder / f"g{index}")), targets=mine, http="127.0.0.1:0",
                grpc="", tenants=str(path), propagation_s=0.0, drain_grace_s=2.0,
            )  # fmt: skip
            app = GatewayApp(settings)
            bound = await app.start()
            stack.push_async_callback(app.drain)
            await until(lambda app=app, mine=mine: len([link for link in app._pool.links if link.counts]) == len(mine))
            clients.append(Client(bound.http))
        yield clients, fakes


async def ask(client: Client, **fields: Any) -> Reply:
    return await client.post(COMPLETIONS, completion(**fields), headers=KEY)


async def hammer(clients: list[Client], count: int, done: Callable[[], bool], **fields: Any) -> list[Reply]:
    """So many callers, spread over the clients, that begin again at once, or soon when they were refused."""
    replies: list[Reply] = []

    async def caller(client: Client) -> None:
        while not done():
            replies.append(await ask(client, **fields))
            if replies[-1].status != 200:
                await asyncio.sleep(AGAIN_S)

    await asyncio.gather(*(caller(clients[index % len(clients)]) for index in range(count)))
    return replies


@pytest.mark.parametrize("through", [3, 1], ids=["all", "one"])
async def test_requests_at_once_hold_whatever_gateways_they_come_through(tmp_path: Path, through: int) -> None:
    """A share of each gateway would hold too, and give a client with one connection a third."""
    async with fleet(tmp_path, f"max_requests = {MOST}\n", 0.01) as (clients, fakes):
        seen: list[int] = []
        stop = asyncio.Event()

        async def watch() -> None:
            while not stop.is_set():
                seen.append(sum(fake.active for fake in fakes))
                if len([one for one in seen if one == MOST]) >= 8:
                    stop.set()
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(240):
            replies = await hammer(clients[:through], 18, stop.is_set, max_tokens=24)
        await watching
        assert max(seen) == MOST
        refused = [one for one in replies if one.status != 200]
        assert refused
        assert all((one.status, one.error["code"]) == (429, "rate_limit_exceeded") for one in refused)
        assert len([one for one in replies if one.status == 200]) >= MOST


async def test_tokens_a_minute_hold_and_are_told(tmp_path: Path) -> None:
    most, answer = 5_000, 80
    async with fleet(tmp_path, f"tokens_per_minute = {most}\n") as (clients, _):
        refused = 0

        async def caller(client: Client) -> int:
            nonlocal refused
            used = 0
            while refused < 6:
                reply = await ask(client, max_tokens=answer, prompt=[5] * 10)
                if reply.status == 200:
                    used += reply.json["usage"]["total_tokens"]
                    continue
                refused += 1
                assert (reply.status, reply.headers["x-ratelimit-limit-tokens"]) == (429, str(most))
                assert 1 <= int(reply.headers["retry-after"]) <= 61
            return used

        async with asyncio.timeout(240):
            used = sum(await asyncio.gather(*(caller(client) for client in clients * 3)))
        assert 0.9 * most <= used <= 1.1 * most
        await asyncio.sleep(0)
        last = await ask(clients[0], max_tokens=1, prompt=[5] * (most // 5))
        assert last.status == 429
        assert int(last.headers["x-ratelimit-remaining-tokens"]) <= 0.2 * most


@pytest.mark.parametrize("answers", [1, 2])
async def test_the_wait_for_those_that_count_ends_at_the_deadline_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    ends: list[str] = []

    async def enter(*_: object) -> list[Permit]:
        try:
            await asyncio.sleep(8 * LIMIT_S)
        except asyncio.CancelledError:
            ends.append("given up")
            raise
        ends.append("waited for")
        return []

    monkeypatch.setattr(Allowance, "enter", enter)
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS + f"max_requests = {MOST}\n")
    async with serving(tmp_path, tenants=str(path), max_request_s=LIMIT_S) as (_, client):
        reply = await ask(client, n=answers)
    assert ends == ["given up"]
    assert (reply.status, reply.error["code"]) == (504, "deadline")


async def test_a_target_that_counts_and_dies_leaves_the_bound_in_force(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"max_requests = {MOST}\n") as (clients, fakes):
        for fake in fakes:
            fake.hold(1)
        long = [asyncio.create_task(ask(clients[index % 3], max_tokens=200)) for index in range(MOST)]
        await until(lambda: sum(fake.active for fake in fakes) == MOST)
        (first,) = Ring({fake.pair_id: None for fake in fakes}).nearest(b"tenant\0one", 1)
        (home,) = [fake for fake in fakes if fake.pair_id == first]
        await home.die()
        left = [fake for fake in fakes if fake is not home]
        await until(lambda: sum(fake.active for fake in left) == MOST and any(fake.uses for fake in left))
        await until(lambda: any(stated(fake) == MOST for fake in left))
        replies = await asyncio.gather(*(ask(client) for client in clients))
        assert [one.status for one in replies] == [429] * 3
        for fake in left:
            fake.go_on()
        assert [one.status for one in await asyncio.gather(*long)] == [200] * MOST


def stated(fake: FakeTarget) -> int:
    """Requests of the tenant that a target knows."""
    return sum(used.requests for of_tenant in fake.tally._used.values() for used in of_tenant.values())


async def test_what_is_left_is_told_of_all_gateways(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"max_requests = {MOST}\n") as (clients, fakes):
        for fake in fakes:
            fake.hold(1)  # whose answers have one token are not held up
        running = [asyncio.create_task(ask(clients[0], max_tokens=150)) for _ in range(5)]
        await until(lambda: sum(fake.active for fake in fakes) == 5)
        left = ""
        async with asyncio.timeout(WAIT_S):
            while left != "2":  # five run elsewhere, and this one; of those that ended the targets hear a little later
                told = await ask(clients[1], max_tokens=1)
                assert told.headers["x-ratelimit-limit-requests"] == str(MOST)
                left = told.headers["x-ratelimit-remaining-requests"]
        for fake in fakes:
            fake.go_on()
        await asyncio.gather(*running)


async def test_a_call_of_several_answers_runs_whole_or_not_at_all(tmp_path: Path) -> None:
    """Its first answer alone would find room, and the others would be refused when the client reads already."""
    async with fleet(tmp_path, "max_requests = 4\n", 0.01) as (clients, fakes):
        served = 0
        replies: list[Reply] = []

        async def caller(client: Client) -> None:
            nonlocal served
            while served < 6:
                replies.append(await ask(client, n=3, max_tokens=24))
                served += replies[-1].status == 200
                await asyncio.sleep(AGAIN_S)

        most = 0

        async def watch() -> None:
            nonlocal most
            while served < 6:
                most = max(most, sum(fake.active for fake in fakes))
                await asyncio.sleep(0.001)

        async with asyncio.timeout(120):
            await asyncio.gather(watch(), *(caller(client) for client in clients))
        assert most == 3
        assert {one.status for one in replies} == {200, 429}
        assert all(len(one.json["choices"]) == 3 for one in replies if one.status == 200)
        never = await ask(clients[0], n=5, max_tokens=12)
        assert (never.status, never.headers.get("retry-after")) == (429, None)
        assert "5 answers at once, and at most 4 may run" in never.error["message"]


async def test_gateways_that_miss_targets_hold_the_bound(tmp_path: Path) -> None:
    """Each misses another one, so no two agree on the first target that counts."""
    seen = [{1, 2, 3}, {0, 2, 3}, {2, 3}]
    async with fleet(tmp_path, "max_requests = 3\n", 0.004, 4, seen) as (clients, fakes):
        most = served = 0

        async def caller(client: Client) -> None:
            nonlocal served
            while served < 9:
                served += (await ask(client, max_tokens=8)).status == 200
                await asyncio.sleep(0.03)

        async def watch() -> None:
            nonlocal most
            while served < 9:
                most = max(most, sum(fake.active for fake in fakes))
                await asyncio.sleep(0.001)

        async with asyncio.timeout(120):
            await asyncio.gather(watch(), *(caller(client) for client in clients * 3))
        assert most == 3
