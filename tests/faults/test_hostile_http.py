"""Z7: whatever comes over HTTP, with a key or without, others' streams go on and the gateway's memory stays."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from deploy.stack import ServiceProcess
from services.gateway.tenancy.tenants import digest
from tests.faults.hostile_http import flood
from tests.integration.http_stack import COMPLETIONS, completion
from tests.integration.pair import ENVIRONMENT
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.http_client import Client
from tests.support.warm import START_S, WarmProcess

TENANTS = "".join(f"[[tenant]]\nname = '{name}'\nkey_sha256 = ['{digest(name)}']\n" for name in ("evil", "other"))
STREAMS = 8
CONNECTIONS = 14
"""At once, with a key and without."""

GROWN_MIB, KEPT_MIB = 56, 16
GIVEN_BACK_S = 30.0
LONGEST_WAIT_S = 1.0
LOOK_S = 0.01
SAMPLE, WHOLE_SAMPLE = (997, 1999), (7, 1191)
"""Every so many-th body with a key, and without, where no body is read; with --full."""


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[tuple[ServiceProcess, Client]]:
    """A gateway process with two tenants, and a client of the second one."""
    target = FakeTarget(pace_s=0.02, context_limit=1 << 16, slots=64)
    (folder / "tenants.toml").write_text(TENANTS)
    flags = ["--tokenizer", str(write_tokenizer(folder / "model")), "--tenants", str(folder / "tenants.toml")]
    flags += ["--targets", await target.start(), "--propagation-s", "0", "--drain-grace-s", "0"]
    process = WarmProcess("gateway", ["services.gateway", *flags, "--http", "127.0.0.1:0"], folder, ENVIRONMENT)
    try:
        bound = await asyncio.to_thread(process.bound, START_S)
        yield process, Client(bound["http"], authorization="Bearer other")
    finally:
        await asyncio.to_thread(process.stop)
        await target.stop()


def memory_mib(process: ServiceProcess, name: str) -> float:
    """VmRSS, what the process holds, or VmHWM, the most that it held."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def cpu_s(process: ServiceProcess) -> float:
    """Time that it has computed."""
    return time.clock_gettime(~process.process.pid << 3 | 2)


class Others:
    """Streams of another tenant, one after the other in each of several places; knows how long they waited for events.

    A wait is counted twice: in seconds, without those in which this process did not run, and in those that the gateway
    computed meanwhile. On a machine that is busy with other things only the second number tells of the gateway, on a
    quiet one the first is never much larger.
    """

    def __init__(self, http: Client, clock: Callable[[], float]) -> None:
        self._http = http
        self._clock = clock
        self.waits_s: list[tuple[float, float]] = []
        self.whole = 0
        self._over = False
        self._late_s, self._looked = 0.0, time.monotonic()

    async def run(self) -> None:
        """Until `end`; a stream that is lost raises."""
        looking = asyncio.create_task(self._look())
        await asyncio.gather(*(self._one() for _ in range(STREAMS)))
        looking.cancel()

    def end(self) -> None:
        """The streams that run are the last ones."""
        self._over = True

    async def _look(self) -> None:
        """Adds up how late this process runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            self._late_s += max(0.0, now - self._looked - LOOK_S)
            self._looked = now

    def _now(self) -> tuple[float, float]:
        """Seconds in which this process ran, and that the gateway has computed."""
        now = time.monotonic()
        return now - self._late_s - max(0.0, now - self._looked - LOOK_S), self._clock()

    async def _one(self) -> None:
        while not self._over:
            times, events = [self._now()], []
            async for event in self._http.stream(COMPLETIONS, completion(max_tokens=100)):
                times.append(self._now())
                events.append(event)
            assert events[-1] == "[DONE]"
            self.waits_s += [(after[0] - at[0], after[1] - at[1]) for at, after in pairwise(times)]
            self.whole += 1


async def attacked(http: Client, clock: Callable[[], float], what: str, key: str, step: int, seconds: float) -> Others:
    """Others' streams while the attacks run."""
    others = Others(http, clock)
    arguments = (http.address, what, key, step, CONNECTIONS, seconds)
    process = multiprocessing.get_context("spawn").Process(target=flood, args=arguments, daemon=True)
    streams = asyncio.create_task(others.run())
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.join)
    others.end()
    await streams
    assert process.exitcode == 0
    return others


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ServiceProcess, Client]]:
    """A gateway that has done all that a process does once, for all attacks in turn."""
    async with gateway(tmp_path_factory.mktemp("gateway")) as (process, http):
        await attacked(http, partial(cpu_s, process), "bodies", "evil", SAMPLE[0], 0.0)
        yield process, http


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("", "wires"),
        ("evil", "bodies"),
        pytest.param("", "bodies", marks=pytest.mark.whole),  # none of which is read
        pytest.param("evil", "wires", marks=pytest.mark.whole),
    ],
)
async def test_z7_no_client_over_http_hurts_others(
    warm: tuple[ServiceProcess, Client], what: str, key: str, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    process, http = warm
    step = (WHOLE_SAMPLE if full else SAMPLE)[not key]
    before, computed = memory_mib(process, "VmRSS"), cpu_s(process)
    Path(f"/proc/{process.process.pid}/clear_refs").write_text("5")
    others = await attacked(http, partial(cpu_s, process), what, key, step, 60.0 if full else 0.0)
    peak, computed = memory_mib(process, "VmHWM") - before, cpu_s(process) - computed
    end = time.monotonic() + GIVEN_BACK_S
    while (kept := memory_mib(process, "VmRSS") - before) > KEPT_MIB and time.monotonic() < end:
        await asyncio.sleep(0.5)
    print(f"Z7 {what} {key}: {peak:.0f} MiB more at the most, {kept:.0f} kept, {computed:.1f} s of CPU")
    longest_s, of_cpu_s = (max(each) for each in zip(*others.waits_s, strict=True))
    print(f"Z7 {what} {key}: {others.whole} streams of others, longest wait {longest_s:.2f} s,")
    print(f"    of the gateway's CPU {of_cpu_s:.2f} s, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    assert "Traceback" not in process.log.read_text()
    assert peak <= GROWN_MIB and kept <= KEPT_MIB
    assert others.whole >= STREAMS
    assert not full or max(min(wait) for wait in others.waits_s) <= LONGEST_WAIT_S
    report_counts("streams_beside_attacks", others.whole)
