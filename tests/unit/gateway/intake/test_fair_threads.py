"""Long work: one piece of each tenant at a time, in turns."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from services.gateway.intake.fair_threads import FairThreads

WAIT_S = 30.0


class Bench:
    """Work that goes on until it is let go; notes who began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.go = threading.Event()

    def work(self, name: str) -> str:
        self.began.append(name)
        assert self.go.wait(WAIT_S)
        return name


@pytest_asyncio.fixture
async def threads() -> AsyncIterator[FairThreads]:
    made = FairThreads(2, "test")
    yield made
    made.close()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.001)


async def test_a_tenant_with_much_work_leaves_a_thread_to_others(threads: FairThreads) -> None:
    bench = Bench()
    many = [asyncio.create_task(threads.run("a", bench.work, f"a{number}")) for number in range(9)]
    await until(lambda: bench.began)
    other = asyncio.create_task(threads.run("b", bench.work, "b0"))
    await until(lambda: len(bench.began) == 2)
    assert bench.began == ["a0", "b0"]
    bench.go.set()
    assert await asyncio.gather(*many, other) == [*(f"a{number}" for number in range(9)), "b0"]


async def test_what_is_cancelled_before_it_began_never_runs_and_later_keeps_its_turn(threads: FairThreads) -> None:
    """Else a tenant could have every thread by cancelling and asking again."""
    bench = Bench()
    tasks = [asyncio.create_task(threads.run("a", bench.work, f"a{number}")) for number in range(3)]
    await until(lambda: bench.began)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    await asyncio.sleep(0.02)
    assert bench.began == ["a0"], "its thread still works for the tenant"
    bench.go.set()
    assert await tasks[2] == "a2"
    assert bench.began == ["a0", "a2"]


async def test_errors_reach_the_caller_and_free_the_turn(threads: FairThreads) -> None:
    def fail() -> None:
        raise ValueError("why")

    for _ in range(3):
        with pytest.raises(ValueError, match="why"):
            await threads.run("a", fail)


async def test_an_error_holds_nothing_of_the_work_that_failed(threads: FairThreads) -> None:
    """It lives until its client has read of it; what a hostile body was parsed into would live as long."""

    class Large:
        pass

    made: list[weakref.ref[Large]] = []

    def fail(given: Large) -> None:
        own = Large()
        made.append(weakref.ref(own))
        try:
            raise ValueError(str(given))
        except ValueError:
            raise KeyError("why") from None

    gc.disable()
    try:
        given = Large()
        made.append(weakref.ref(given))
        with pytest.raises(KeyError) as caught:
            await threads.run("a", fail, given)
        assert made[1]() is None, "while the error lives"
        del given, caught
        await until(lambda: made[0]() is None)
    finally:
        gc.enable()
