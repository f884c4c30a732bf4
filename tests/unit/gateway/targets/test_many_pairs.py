"""What a request and an event touch does not grow with the fleet: counted, not timed."""

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import GatewayMetrics
from services.gateway.routing.crowd import HOMES, PROBES, Candidate, Crowd, Fleet
from services.gateway.routing.router import MEASURED, PREFIX_BLOCK, Router, prefix_digests
from services.gateway.targets import heartbeat
from services.gateway.targets.heartbeat import Heartbeat
from services.gateway.targets.link import Dial, Link
from services.gateway.targets.pool import Pool
from services.gateway.targets.roster import Roster
from tests.support.metrics import value_of

PAIRS = 1_000
touched: Counter[str] = Counter()


class Counted(Candidate):
    """Counts each look at its load."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name == "running":
            touched[object.__getattribute__(self, "pair_id")] += 1
        return object.__getattribute__(self, name)


class FakeLink:
    """A link whose target takes work, or not; counts who asks."""

    def __init__(self, pair_id: str, model: str = "m", revision: str = "r") -> None:
        self.pair_id = pair_id
        self.model: Any = SimpleNamespace(name=model, revision=revision)
        self.asked = 0
        self.questions = 0
        self.old = True
        self._candidate: Candidate | None = Counted(pair_id, slots=8, model=model, revision=revision)

    def candidate(self) -> Candidate | None:
        self.asked += 1
        return self._candidate

    @property
    def counts(self) -> bool:
        """Targets of one model are of an older release, and count no tenants."""
        return self._candidate is not None and self.model.name != "m2"

    def settled(self, longest_s: float) -> bool:
        """It has been there for long."""
        return self.old

    def ask(self, job: Any) -> None:
        """Whether it holds a key."""
        self.questions += 1

    def lose(self) -> None:
        """Its session is gone, and with it the id that the target stated."""
        self._candidate, self.model, self.pair_id = None, None, "@address"


def roster(links: list[FakeLink]) -> Roster:
    found = Roster("")
    for link in links:
        found.look(cast("Link", link))
    return found


async def test_a_request_looks_at_a_few_candidates_of_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [FakeLink(f"p{index}") for index in range(PAIRS)]
    pool = Pool(Dial("g", (), cast("Any", None)), Router(random.Random(1)), metrics())
    monkeypatch.setattr(pool, "_roster", roster(links))
    for link in links:
        link.asked = 0
    touched.clear()
    for number in range(50):
        digests = prefix_digests([number] * PREFIX_BLOCK, b"")
        for key in ("", f"key{number}"):
            await pool.place("m", (digests, b""), key, (), None, 1.0)
    assert touched.total() <= 50 * (MEASURED + 2 + 1 + HOMES)
    assert sum(link.asked for link in links) == 100, "the one that was chosen, each time"


@pytest.mark.parametrize(
    ("young", "lost", "asked"),
    [((), (), 1), ((0,), (), 1), ((1,), (), 2), ((1, 2), (), 3), ((0, 1, 2, 3), (), 3), ((), (1,), 1), ((1,), (2,), 2)],
)
async def test_a_key_asks_beyond_its_pair_as_far_as_pairs_are_young(
    young: tuple[int, ...], lost: tuple[int, ...], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers are places of pairs as the key leads to them; those lost are not there at all."""
    links = {f"p{index}": FakeLink(f"p{index}") for index in range(PAIRS)}
    pool = Pool(Dial("g", (), cast("Any", None)), Router(random.Random(1)), metrics())
    order = [one.pair_id for one in roster([*links.values()]).answering("m").homes(b"t\0key", 8)]
    for place in young:
        links[order[place]].old = False
    for place in lost:
        links[order[place]].lose()
    monkeypatch.setattr(pool, "_roster", roster([*links.values()]))
    job: Any = SimpleNamespace(model="m", key="key", tenant=SimpleNamespace(name="t"))
    await pool.ask_others(cast("Link", links[order[0]]), job)
    left = [name for place, name in enumerate(order) if place not in lost]
    assert [name for name in order if links[name].questions] == left[1 : 1 + asked]


async def test_a_key_asks_pairs_that_drain_before_its_own_and_one_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {f"p{index}": FakeLink(f"p{index}") for index in range(PAIRS)}
    pool = Pool(Dial("g", (), cast("Any", None)), Router(random.Random(1)), metrics())
    found = roster([*links.values()])
    order = [one.pair_id for one in found.answering("m").homes(b"t\0key", 8)]
    monkeypatch.setattr(pool, "_roster", found)
    job: Any = SimpleNamespace(model="m", key="key", tenant=SimpleNamespace(name="t"))
    for chosen, asked in ((1, [0, 2]), (2, [0, 1, 3]), (6, [0, 1, 2])):
        for link in links.values():
            link.questions = 0
        await pool.ask_others(cast("Link", links[order[chosen]]), job)
        assert [place for place, name in enumerate(order) if links[name].questions] == asked


def metrics() -> GatewayMetrics:
    return GatewayMetrics(CollectorRegistry(), "m")


async def test_an_event_looks_at_its_own_link_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [FakeLink(f"p{index}") for index in range(PAIRS)]
    found = metrics()
    pool = Pool(Dial("g", (), cast("Any", None)), Router(random.Random(1)), found)
    monkeypatch.setattr(pool, "_roster", roster(links))
    for link in links:
        link.asked = 0
    for link in links[::10]:
        link.lose()
        pool._notify(cast("Link", link))
    assert sum(link.asked for link in links) == len(links[::10])
    assert value_of(found.gateway_ready_targets) == PAIRS - len(links[::10])


def test_the_roster_is_what_its_links_are_after_any_events() -> None:
    dice = random.Random(7)
    links = [FakeLink(f"p{index % 30}", f"m{index % 3}", f"r{index % 2}") for index in range(60)]
    spare = {link: (link._candidate, link.model, link.pair_id) for link in links}
    found = roster(links)
    for _ in range(1_000):
        link = dice.choice(links)
        if link._candidate is None:
            link._candidate, link.model, link.pair_id = spare[link]
        else:
            link.lose()
        found.look(cast("Link", link))
        there = [one for one in links if one._candidate is not None]
        for model in ("m0", "m1", "m2"):
            ids = {one.pair_id for one in there if one.model.name == model}
            fleet = found.fleet(model)
            assert {one.pair_id for one in fleet.all.members} == ids
            assert {one.pair_id for crowd in fleet.revisions.values() for one in crowd.members} == ids
            assert {one.pair_id for one in cast("Any", found.answering(model).members)} == ids
            assert all(cast("Any", found.leading(name))._candidate in fleet.all.members for name in ids)
        assert found.ready == len({one.pair_id for one in there})
        assert {one.pair_id for one in found.counting.members} == {one.pair_id for one in there if one.counts}


def test_a_key_of_a_thousand_pairs_asks_a_few_points() -> None:
    crowd = Crowd(Candidate(f"p{index}") for index in range(PAIRS))
    crowd.homes(b"")
    ring: Any = crowd._ring
    asked = 0

    class Owners(list[str]):
        def __getitem__(self, place: Any) -> Any:
            nonlocal asked
            asked += 1
            return super().__getitem__(place)

    ring._owners = Owners(ring._owners)
    for number in range(100):
        assert len({one.pair_id for one in crowd.homes(f"k{number}".encode())}) == HOMES
    assert asked <= 100 * PROBES


def test_homes_stay_when_others_come_and_go_one_by_one() -> None:
    fleet = Fleet(Candidate(f"p{index}") for index in range(200))
    before = {key: fleet.all.homes(b"%d" % key, 1)[0].pair_id for key in range(2_000)}
    gone = {f"p{index}" for index in range(0, 200, 10)}
    for pair_id in gone:
        found = fleet.all.find(pair_id)
        assert found is not None
        fleet.discard(found)
    after = {key: fleet.all.homes(b"%d" % key, 1)[0].pair_id for key in before}
    assert all(after[key] == before[key] for key in before if before[key] not in gone)
    assert not gone & {*after.values()}
    again = Fleet(Candidate(f"p{index}") for index in range(200) if f"p{index}" not in gone)
    assert after == {key: again.all.homes(b"%d" % key, 1)[0].pair_id for key in before}


async def test_all_sessions_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "TICK_S", 0.001)
    sleeps = 0
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        await sleep(seconds)

    monkeypatch.setattr("services.gateway.targets.heartbeat.asyncio.sleep", counted)

    async def live() -> bool:
        return True

    beats = [Heartbeat(live, live) for _ in range(200)]
    watching = [asyncio.create_task(one.watch()) for one in beats]
    await sleep(0)
    for _ in range(20):
        ticks = beats[0]._mute
        while beats[0]._mute == ticks:
            await sleep(0.0005)
        for one in beats:
            one.beat()
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    assert 20 <= sleeps < 200
    assert not heartbeat._CLOCKS[asyncio.get_running_loop()]._listeners
