"""What the rig of `make chaos` and `make soak` says of streams and slopes; no process, no clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.bench.chaos import clients, faults
from tests.bench.chaos.clients import Ask, Clients, StreamError
from tests.bench.chaos.faults import Fault
from tests.bench.chaos.levels import FEWEST, Levels
from tests.bench.chaos.waves import Waves

ASKS = [Ask(number, 8) for number in range(6)]


class FakeDoor:
    """A gateway that answers from a list of ends, then well; `struck` says that a fault met it."""

    def __init__(self) -> None:
        self.lives = 1
        self.struck = False
        self.ends: list[str] = []
        self.wrong = ""
        self.keys: list[str] = []

    def excuses(self, lives: int, begun: bool) -> bool:
        return self.struck

    async def read(self, ask: Ask, key: str, begun: Callable[[], None], off: bool = False) -> str:
        self.keys.append(key)
        begun()
        if self.ends and not off:
            raise StreamError(self.ends.pop(0), "made up", True)
        return f"text {ask.number}" + ("" if off else self.wrong)


class FakeSite:
    """Heals at once and holds what it is told to."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.held = 0

    async def healed(self) -> None:
        """It is."""

    async def leaks(self) -> dict[str, int]:
        return {"slots": self.held, "blocks": 0, "descriptors": 0}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "RETRY_S", 0.0)


async def run(doors: list[FakeDoor], site: FakeSite | None = None, waves: int = 1) -> dict[str, object]:
    readers = Clients(doors, ASKS, "test")
    await readers.learn()
    made = Waves(site or FakeSite(), readers, random.Random(1), spread_s=0.0)
    await made.run(("nothing", nothing) for _ in range(waves))
    return made.report()


async def nothing() -> None:
    """A fault that is none."""


async def test_streams_that_end_well_are_no_finding() -> None:
    report = await run([FakeDoor(), FakeDoor()], waves=2)
    assert report["ok"]
    assert (report["streams"], report["lost"], report["differ"], report["by_gateway"]) == (12, 0, 0, 0)
    assert report["faults"] == {"nothing": 2}
    assert report["kinds"] == {"generate": 4, "chat": 4, "completion": 4}


async def test_a_stream_that_a_gateway_loses_unstruck_is_lost() -> None:
    doors = [FakeDoor(), FakeDoor()]
    doors[0].ends = ["UNAVAILABLE"]
    report = await run(doors)
    assert (report["lost"], report["by_gateway"], report["ok"]) == (1, 0, False)


async def test_a_stream_of_a_struck_gateway_is_read_again_by_its_key_through_another() -> None:
    doors = [FakeDoor(), FakeDoor()]
    doors[0].struck, doors[0].ends = True, ["UNAVAILABLE"]
    doors[1].ends = []
    report = await run(doors)
    assert (report["lost"], report["by_gateway"], report["ok"]) == (0, 1, True)
    (again,) = set(doors[0].keys) & set(doors[1].keys) - {""}
    assert again.startswith("test-0-")


async def test_a_key_that_is_still_known_is_asked_again_until_it_is_free() -> None:
    doors = [FakeDoor(), FakeDoor()]
    for door in doors:
        door.struck, door.ends = True, ["UNAVAILABLE", "ALREADY_EXISTS", "409"]
    report = await run(doors)
    assert (report["lost"], report["ok"]) == (0, True)


async def test_another_text_and_what_is_kept_are_findings() -> None:
    doors, site = [FakeDoor(), FakeDoor()], FakeSite()
    doors[1].wrong = "!"
    site.held = 2
    report = await run(doors, site)
    assert report["differ"] == len(ASKS) // 2
    assert report["leaked"] == {"slots": 2, "blocks": 0, "descriptors": 0}
    assert not report["ok"]


def test_every_kind_of_fault_comes_before_one_comes_again() -> None:
    kinds = [Fault(f"fault {number}", lambda place, rng: nothing()) for number in range(7)]
    drawn = [fault.kind for fault in faults.schedule(kinds, 21, random.Random(3), within_s=1e9)]
    assert [sorted(drawn[at : at + 7]) for at in (0, 7, 14)] == [[fault.kind for fault in kinds]] * 3
    assert drawn == [fault.kind for fault in faults.schedule(kinds, 21, random.Random(3), within_s=1e9)]


@pytest.mark.parametrize(
    ("measure", "level", "growing"),
    [
        ("memory_kib", lambda at: 100_000 + 3_000 * (at % 2), lambda at: 100_000 + 300 * at),
        ("threads", lambda at: 12 + (at == 7), lambda at: 12 + at // 10),
        ("descriptors", lambda at: 40 + at % 3, lambda at: 40 + at // 8),
        ("series", lambda at: 200 + (at > 30), lambda at: 200 + at // 4),
    ],
)
def test_slopes_tell_growth_from_noise(
    measure: str, level: Callable[[int], float], growing: Callable[[int], float]
) -> None:
    for of, wanted in ((level, True), (growing, False)):
        levels = Levels()
        for at in range(36):
            levels.add(100.0 * at, {(measure, "someone"): of(at), (measure, "another"): 5.0})
        report = levels.report()
        assert report["level"] is wanted, report
        assert report["judged"] == {measure: 2}
        assert wanted or report["of"] == {measure: "someone"}


def test_too_few_samples_are_no_verdict() -> None:
    levels = Levels()
    for at in range(FEWEST - 1):
        levels.add(float(at), {("threads", "someone"): 1.0 + at})
    assert levels.report()["level"] is False
