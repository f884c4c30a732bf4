"""How many bodies of a tenant are under way: counted at every change, so that no moment is missed on any machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.gateway.http.reading.body import LARGE_BYTES, Bodies
from services.gateway.intake import inlet
from services.gateway.intake.inlet import ALL_LARGE_PLACES, LARGE_PLACES, Gates
from services.gateway.tenancy.tenants import digest
from tests.integration.http_stack import COMPLETIONS, completion, serving
from tests.support.http_client import WAIT_S, Client, Http, connected

ASKED, PLACES = 60, 12
HEAD = {"content-type": "application/json", "content-length": str(4 << 20)}
TENANTS = "".join(
    f"[[tenant]]\nname = '{name}'\nkey_sha256 = ['{digest(name)}']\nmax_requests = {PLACES}\n" for name in "abcdef"
)


class Count:
    """How many are inside now, and how many were at the most at any moment."""

    def __init__(self) -> None:
        self.now = self.most = self.entered = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Inside while the block runs."""
        self.now += 1
        self.entered += 1
        self.most = max(self.most, self.now)
        try:
            yield
        finally:
            self.now -= 1


class Counts:
    """Bodies that are read, and large ones among them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies, self.large = Count(), Count()
        read, large = Bodies.read, Gates.large

        async def counted(bodies: Bodies, *arguments: Any) -> Any:
            async with self.bodies.one():
                return await read(bodies, *arguments)

        @asynccontextmanager
        async def counted_large(gates: Gates) -> AsyncIterator[Any]:
            async with large(gates) as whole, self.large.one():
                yield whole

        monkeypatch.setattr(Bodies, "read", counted)
        monkeypatch.setattr(Gates, "large", counted_large)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


@pytest.fixture
def tenants(tmp_path: Path) -> str:
    (tmp_path / "tenants.toml").write_text(TENANTS)
    return str(tmp_path / "tenants.toml")


async def half_sent(held: AsyncExitStack, http: Client, body_bytes: int, key: str = "a") -> Http:
    """A request of which so many bytes of the body are on their way."""
    raw = await held.enter_async_context(connected(http.address))
    raw.begin(COMPLETIONS, b" " * body_bytes, {**HEAD, "authorization": f"Bearer {key}"})
    return raw


async def until(true: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.01)


async def test_as_many_half_sent_bodies_as_places_are_held_and_the_rest_is_refused(
    tmp_path: Path, tenants: str, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None ends by its time here, so that each answer has one cause."""
    monkeypatch.setattr(inlet, "PATIENCE_S", 3600.0)
    async with serving(tmp_path, tenants=tenants) as (_, http), AsyncExitStack() as held:
        peers = [await half_sent(held, http, 1000) for _ in range(ASKED)]
        answers = [asyncio.create_task(peer.reply_to_raw()) for peer in peers]
        await until(lambda: sum(answer.done() for answer in answers) >= ASKED - PLACES)
        refused = [answer for answer in answers if answer.done()]
        assert [answer.result().status for answer in refused] == [429] * (ASKED - PLACES)
        assert (counts.bodies.now, counts.bodies.most) == (PLACES, PLACES)
        other = Client(http.address, authorization="Bearer b")
        assert (await other.post(COMPLETIONS, completion())).status == 200, "others have places of their own"
        for answer, peer in zip(answers, peers, strict=True):
            if not answer.done():
                answer.cancel()
                peer.writer.transport.abort()
        await until(lambda: counts.bodies.now == 0)
        assert (await Client(http.address, authorization="Bearer a").post(COMPLETIONS, completion())).status == 200


async def test_places_that_are_given_on_are_never_more(
    tmp_path: Path, tenants: str, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large bodies that do not go on lose their place at once: each moment somebody leaves and somebody enters."""
    monkeypatch.setattr(inlet, "HURRY_S", 0.02)
    monkeypatch.setattr(inlet, "PATIENCE_S", 3.0)
    async with serving(tmp_path, tenants=tenants) as (_, http):

        async def ask(key: str) -> int:
            async with AsyncExitStack() as held:
                peer = await half_sent(held, http, LARGE_BYTES + 1, key)
                return (await peer.reply_to_raw()).status

        statuses = await asyncio.gather(*(ask("a") for _ in range(ASKED)))
        assert set(statuses) <= {408, 429}
        assert counts.bodies.most <= PLACES
        assert counts.large.most <= LARGE_PLACES
        assert counts.large.entered > LARGE_PLACES, "places were given on"
        await asyncio.gather(*(ask(key) for key in "abcdef" for _ in range(PLACES)))
        assert counts.bodies.most <= 6 * PLACES
        assert LARGE_PLACES < counts.large.most <= ALL_LARGE_PLACES
        await until(lambda: not counts.bodies.now + counts.large.now)
