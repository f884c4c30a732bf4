"""What is done to pods and gateways while streams run: every process killed and stopped, and what a machine does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from services.common.serving.process import end_session, name_of
from tests.bench.chaos.place import Place

HOUR_S = 3600
SHORT_S, LONG_S, LONG_SHARE = (1.0, 6.0), 45.0, 0.4
"""A stop that nothing need notice, and one that a probe must; and how often it is the second."""

LEAVE_S = 60.0
SERVICES = ("ray::TargetHost", "ray::DrafterHost")

Strike = Callable[[Place, random.Random], Awaitable[None]]
Victim = Callable[[Place, random.Random], int]


@dataclass(frozen=True)
class Fault:
    """A kind of fault; `strike` does it to one of those it can meet, and returns when it is over."""

    kind: str
    strike: Strike


def catalogue(place: Place) -> list[Fault]:
    """Kinds of faults; the processes of a pod are those that live now, whatever they are."""
    pod = place.pods[0]
    names = sorted({name_of(pid) for pid in pod.living() if pid != pod.leader} - {""})
    victims: dict[str, Victim] = {name: partial(_of_a_pod, name) for name in names}
    victims |= {"controller": _controller, "chat child": _chat_child}
    faults = [Fault(f"kill {name}", partial(_kill, victim)) for name, victim in victims.items()]
    faults += [Fault(f"stop {name}", partial(_stop, victim)) for name, victim in victims.items()]
    victims["gateway"] = _gateway
    faults += [Fault(f"no descriptors for {name}", partial(_starve, victim)) for name, victim in victims.items()]
    return [
        *faults,
        Fault("kill gateway", _kill_gateway),
        Fault("stop gateway", _stop_gateway),
        Fault("leave gateway", _leave_gateway),
        Fault("leave pod", _leave_pod),
        Fault("full disk", _full),
        Fault("full disk, service killed", _full_and_killed),
        Fault("clock", _clock),
    ]


def schedule(faults: Sequence[Fault], waves: int, rng: random.Random, within_s: float) -> Iterator[Fault]:
    """Every kind in turn, in another order each time; none begins when the time is over."""
    left: list[Fault] = []
    end = time.monotonic() + within_s
    for _ in range(waves):
        if time.monotonic() > end:
            return
        left = left or rng.sample(faults, len(faults))
        yield left.pop()


def _of_a_pod(name: str, place: Place, rng: random.Random) -> int:
    pod = rng.choice(place.pods)
    found = [pid for pid in pod.living() if name_of(pid) == name and pid != pod.leader]
    return rng.choice(sorted(found)) if found else 0


def _controller(place: Place, rng: random.Random) -> int:
    return rng.choice(place.pods).leader


def _gateway(place: Place, rng: random.Random) -> int:
    return rng.choice(place.gateways).pid


def _chat_child(place: Place, rng: random.Random) -> int:
    found = rng.choice(place.gateways).children()
    return rng.choice(sorted(found)) if found else 0


async def _kill(victim: Victim, place: Place, rng: random.Random) -> None:
    pid = victim(place, rng)
    leads = any(pid == pod.leader for pod in place.pods)
    _send(pid, signal.SIGKILL)
    if leads:  # The kernel ends a container with its first process.
        await asyncio.to_thread(end_session, pid)


async def _stop(victim: Victim, place: Place, rng: random.Random) -> None:
    await _hold(victim(place, rng), LONG_S if rng.random() < LONG_SHARE else rng.uniform(*SHORT_S))


async def _hold(pid: int, seconds: float) -> None:
    """Stops a process for a while; who looks after it may end it before."""
    _send(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    _send(pid, signal.SIGCONT)


async def _starve(victim: Victim, place: Place, rng: random.Random) -> None:
    """A process can open nothing for a while."""
    pid = victim(place, rng)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        await asyncio.sleep(rng.uniform(*SHORT_S))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, number)


async def _kill_gateway(place: Place, rng: random.Random) -> None:
    gateway = rng.choice(place.gateways)
    gateway.end(killed=True)
    _send(gateway.pid, signal.SIGKILL)


async def _stop_gateway(place: Place, rng: random.Random) -> None:
    """Shorter than its probe waits: another process would be a killed gateway."""
    await _hold(rng.choice(place.gateways).pid, rng.uniform(*SHORT_S))


async def _leave_gateway(place: Place, rng: random.Random) -> None:
    gateway = rng.choice(place.gateways)
    lives = gateway.lives
    gateway.end(killed=False)
    _send(gateway.pid, signal.SIGTERM)
    await _until(lambda: gateway.gone or gateway.lives != lives)


async def _leave_pod(place: Place, rng: random.Random) -> None:
    pod = rng.choice(place.pods)
    leader = pod.leader
    _send(leader, signal.SIGTERM)
    await _until(lambda: pod.gone or pod.leader != leader)


async def _until(done: Callable[[], bool]) -> None:
    """Waits for one that was told to go; its streams have their grace."""
    async with asyncio.timeout(LEAVE_S):
        while not done():
            await asyncio.sleep(0.1)


async def _full(place: Place, rng: random.Random) -> None:
    await _fill(place, rng.choice(sorted(place.disks)), rng.uniform(*SHORT_S))


async def _full_and_killed(place: Place, rng: random.Random) -> None:
    """A service must begin again where nothing can be written."""
    pod = rng.choice(place.pods)
    filled = asyncio.create_task(_fill(place, pod.name, LONG_S / 2))
    await asyncio.sleep(0.5)
    name = rng.choice(SERVICES)
    for pid in pod.living():
        if name_of(pid) == name[:15]:
            _send(pid, signal.SIGKILL)
    await filled


async def _fill(place: Place, name: str, seconds: float) -> None:
    place.disks[name].fill()
    try:
        await asyncio.sleep(seconds)
    finally:
        place.disks[name].free()


async def _clock(place: Place, rng: random.Random) -> None:
    """A machine's clock steps an hour ahead or back, and is right again."""
    stepped = place.clocks[rng.choice(sorted(place.clocks))]
    stepped.shift(rng.choice((HOUR_S, -HOUR_S)))
    await asyncio.sleep(rng.uniform(*SHORT_S))
    stepped.shift(0)
