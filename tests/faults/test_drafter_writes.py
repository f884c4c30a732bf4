"""F3: a drafter writes every byte that it can reach. The text stays, and the next drafter finds its weights whole."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.faults.conftest import Size
from tests.faults.rest import at_rest, defects_in, processes_of
from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.integration.test_pair import plain
from tests.support.scribbling_drafter import ScribblingDrafter
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import write_tiny
from tests.support.warm import WarmProcess
from tests.unit.target.core.specs import prompt

TOKENS = 60
ENDED_S = 60.0


def frames() -> list[pb.Start]:
    """Greedy requests, and some that draw at 0.8."""
    sampled = types.Sampling(temperature=0.8, seed=7)
    return [start(f"r{n}", prompt(n, 9 + 13 * n), TOKENS, sampling=sampled if n % 2 else None) for n in range(4)]


async def drafted(pair: PairProcesses, expected: dict[str, list[int]]) -> int:
    """Runs all with speculation on, compares, and returns how many drafts were accepted."""
    async with SessionClient(pair.bound["grpc"]) as client:
        for frame in frames():
            await client.start(frame)
        ends = [await received.ended() for received in client.requests.values()]
        assert {name: received.tokens for name, received in client.requests.items()} == expected
    return sum(end.speculation.accepted for end in ends)


def turn_to(pair: PairProcesses, socket: Path) -> None:
    """The target finds what listens there the next time it connects."""
    fresh = pair.folder / "fresh"
    fresh.symlink_to(socket)
    fresh.replace(pair.folder / "drafter.sock")


async def test_a_drafter_that_writes_all_it_can_changes_no_text(
    seed: int, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        folder = Path(name)
        scribbling = ScribblingDrafter(folder, seed)
        pair = PairProcesses(folder, write_tiny(folder / "models", seed=3))
        try:
            await asyncio.to_thread(pair.wait_ready)
            expected = await plain(pair, frames())
            assert await drafted(pair, expected) > 0
            first = (await asyncio.to_thread(pair.describe)).generation
            turn_to(pair, folder / "fake.sock")
            pair.kill_drafter(0)
            second = (await asyncio.to_thread(pair.wait_attached, first + 1)).generation
            while scribbling.scribbles < size(100, 5_000):
                await drafted(pair, expected)
            assert (scribbling.open, scribbling.sealed) == (1, 1), "the mailbox alone can be written"
            state = await asyncio.to_thread(pair.describe)
            assert state.generation == second, "the drafter that writes has stayed attached"
            pair.turn_to(pair.add_drafter())
            scribbling.stop()
            await asyncio.to_thread(pair.wait_attached, second + 1)
            assert await drafted(pair, expected) > 0
            await asyncio.to_thread(pair.until, lambda: at_rest(pair), "rest")
        finally:
            await asyncio.to_thread(pair.stop)
            scribbling.stop()
            defects, orphans = defects_in(folder), processes_of(folder)
    assert not defects, defects
    assert not orphans, orphans
    report_counts("scribbles", scribbling.scribbles)


def test_a_target_whose_own_weights_are_damaged_ends() -> None:
    """Its drafter finds the checksum wrong; what it would say from then on is wrong too."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        folder = Path(name)
        models, address = write_tiny(folder / "models", seed=3), f"unix:{folder}/d"
        drafter = ["services.drafter", "--model", str(models.drafter), "--grpc", address]
        target = ["tests.faults.damaged_target", "--model", str(models.target), "--drafter-model", str(models.drafter)]
        target += ["--drafter-address", address, "--run-dir", str(folder)]
        running = [WarmProcess(kind, command, folder, ENVIRONMENT) for kind, command in (("d", drafter), ("t", target))]
        try:
            assert running[1].process.wait(ENDED_S) == 1, running[1].tail()
            assert "own embedding or head is not what it has loaded" in running[1].tail()
        finally:
            for process in running:
                process.stop(0.0)
