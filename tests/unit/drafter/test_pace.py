"""Pace over gRPC: rounds in order, one stream per attachment, and every way in which an attachment ends (I5)."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pair.turns import Answer, Ask, TurnSocket, asking_end
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.support.fakes_arena import FakeArena
from tests.unit.drafter.running import PATIENCE_S, Drafter, ask, freed, mapped_arenas, running

REPOSITORY = Path(__file__).resolve().parents[3]
REFUSED = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def filled(fake: FakeArena) -> FakeArena:
    fake.put(1, [7, 8, 9, 7], epoch=5)
    fake.rows([1], 4)
    return fake


async def test_every_round_fills_the_mailbox(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        await drafter.attach(filled.offer)
        stream = drafter.pace()
        for number in range(10, 40):
            filled.put(1, [7, number, 9, 7], epoch=number)
            answer = await ask(stream, number, bucket=4, width=8)
            assert (answer.generation, answer.round) == (1, number)
            assert filled.tag(1) == (number, number, 1)
            assert filled.drafts(1, 4) == [number, 9, 7, number]


async def test_rounds_asked_over_the_side_socket_fill_the_mailbox(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        turns = await _attached_by_socket(drafter, filled, 1)
        stream = drafter.pace()
        for number in range(10, 40):
            filled.put(1, [7, number, 9, 7], epoch=number)
            answer = await asyncio.to_thread(_turn, turns, Ask(1, number, 4, 8, 1))
            assert answer is not None
            assert (answer.generation, answer.round) == (1, number)
            assert filled.tag(1) == (number, number, 1)
            assert filled.drafts(1, 4) == [number, 9, 7, number]
        assert (await drafter.describe()).rounds == 30
        stream.cancel()
        await freed(drafter)
        assert await asyncio.to_thread(turns.receive, PATIENCE_S) is None, "the turns end with the stream"
        turns.close()


async def test_a_wrong_round_over_the_side_socket_ends_the_turns(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        for generation, (fields, _) in enumerate(WRONG_ROUNDS, start=1):
            turns = await _attached_by_socket(drafter, filled, generation)
            stream = drafter.pace()
            right = Ask(generation, 1, 1, 4, 1)
            wrong = Ask(**right._asdict() | {"round": 2} | fields)
            assert await asyncio.to_thread(_turn, turns, right) is not None
            before = filled.tag(1)
            assert await asyncio.to_thread(_turn, turns, wrong) is None, fields
            assert filled.tag(1) == before
            turns.close()
            await stream.done_writing()
            await freed(drafter)


async def _attached_by_socket(drafter: Drafter, fake: FakeArena, generation: int) -> TurnSocket[Ask, Answer]:
    await drafter.attach(fake.renew(generation), handoff="socket")
    connection = fake.listener.take_connection()
    assert connection is not None
    return asking_end(connection)


def _turn(turns: TurnSocket[Ask, Answer], ask: Ask) -> Answer | None:
    turns.send(ask)
    return turns.receive(PATIENCE_S)


WRONG_ROUNDS: tuple[tuple[dict[str, int], grpc.StatusCode], ...] = (
    ({"generation": 99}, REFUSED),
    ({"generation": 0}, REFUSED),
    ({"bucket": 3}, grpc.StatusCode.INVALID_ARGUMENT),
    ({"width": 1}, grpc.StatusCode.INVALID_ARGUMENT),
    ({"rows": 2}, grpc.StatusCode.INVALID_ARGUMENT),
)


async def test_a_round_that_was_not_agreed_on_ends_the_stream(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        for generation, (fields, code) in enumerate(WRONG_ROUNDS, start=1):
            await drafter.attach(filled.renew(generation))
            stream = drafter.pace()
            await ask(stream, 1, generation=generation)
            before = filled.tag(1)
            round_fields: dict[str, Any] = {"generation": generation, "round": 2, "bucket": 1, "width": 4, "rows": 1}
            await stream.write(pb.PaceRequest(**(round_fields | fields)))
            assert await stream.code() == code, fields
            assert filled.tag(1) == before
            await freed(drafter)


async def test_pace_needs_an_attachment_and_is_alone(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        assert await drafter.pace().code() == REFUSED
        await drafter.attach(filled.offer)
        stream = drafter.pace()
        await ask(stream, 1)
        assert await drafter.pace().code() == REFUSED
        assert (await ask(stream, 2)).round == 2


async def test_a_new_attachment_replaces_the_old(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        await drafter.attach(filled.offer)
        old = drafter.pace()
        await ask(old, 1)
        await drafter.attach(filled.renew(2))
        assert await old.code() == REFUSED
        new = drafter.pace()
        await ask(new, 2, generation=2)
        assert filled.tag(1) == (2, 5, 2)
        assert await drafter.generation() == 2


async def test_the_attachment_ends_with_its_stream(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        for generation in (1, 2):
            await drafter.attach(filled.renew(generation))
            stream = drafter.pace()
            await ask(stream, 1, generation=generation)
            if generation == 1:
                await stream.done_writing()
            else:
                stream.cancel()
            await freed(drafter)


async def test_an_attachment_without_a_stream_is_freed(folder: Path, filled: FakeArena) -> None:
    async with running(folder, pace_timeout_s=0.05) as drafter:
        await drafter.attach(filled.offer)
        await freed(drafter)
        assert await drafter.pace().code() == REFUSED


_TARGET = """
import sys
from pathlib import Path
from services.common.pair.side_socket import DescriptorListener
folder, generation, nonce, *descriptors = sys.argv[1:]
listener = DescriptorListener(Path(folder))
listener.offer(int(generation), int(nonce), [int(each) for each in descriptors])
print(listener.path, flush=True)
sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def _target_process(folder: Path, fake: FakeArena) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that shares the arena over a side socket of its own, and that socket's path."""
    descriptors, claim = fake.arena.descriptors, (fake.offer.generation, fake.offer.nonce)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _TARGET, str(folder / "target"), *map(str, (*claim, *descriptors)),
        cwd=REPOSITORY, pass_fds=descriptors, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        yield process, line.decode().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_death_of_the_target_frees_the_mapping(folder: Path, filled: FakeArena) -> None:
    inode = str(os.fstat(filled.arena.descriptors[0]).st_ino)
    async with running(folder) as drafter, _target_process(folder, filled) as (process, socket):
        before = mapped_arenas().count(inode)
        await drafter.attach(filled.offer, side_socket=socket, target_pid=process.pid)
        assert mapped_arenas().count(inode) > before
        stream = drafter.pace()
        await ask(stream, 1)
        os.kill(process.pid, signal.SIGKILL)
        assert await stream.code() == REFUSED
        assert await drafter.generation() == 0
        assert mapped_arenas().count(inode) == before


async def test_a_pid_that_is_not_the_sharing_process_is_not_watched(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        await drafter.attach(filled.offer, target_pid=process.pid)
        stream = drafter.pace()
        await ask(stream, 1)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert (await ask(stream, 2)).round == 2
