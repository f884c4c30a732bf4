"""Pace over gRPC: rounds in order, one stream per attachment, and every way in which an attachment ends (I5)."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from services.common.attach_convert import offer_from_pb
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.fakes_arena import FakeArena
from tests.unit.drafter.running import PATIENCE_S, ask, freed, mapped_arenas, running

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


WRONG_ROUNDS = (
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
            round_fields = {"generation": generation, "round": 2, "bucket": 1, "width": 4, "rows": 1}
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
import sys, time
from pathlib import Path
from services.common.attach_convert import offer_to_pb
from tests.fakes_arena import fake_arena
with fake_arena(Path(sys.argv[1])) as fake:
    fake.put(0, [1, 2, 1], epoch=1)
    fake.rows([0], 1)
    print(offer_to_pb(fake.offer).SerializeToString().hex(), flush=True)
    sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def _target_process(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, pb.AttachRequest]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _TARGET, str(folder / "target"), cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        yield process, pb.AttachRequest.FromString(bytes.fromhex(line.decode()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_death_of_the_target_frees_the_mapping(folder: Path) -> None:
    async with running(folder) as drafter, _target_process(folder) as (process, message):
        before = set(mapped_arenas())
        await drafter.attach(offer_from_pb(message))
        mine = set(mapped_arenas()) - before
        assert mine
        stream = drafter.pace()
        await ask(stream, 1)
        os.kill(process.pid, signal.SIGKILL)
        assert await stream.code() == REFUSED
        assert await drafter.generation() == 0
        assert not mine & set(mapped_arenas())


async def test_a_pid_that_is_not_the_sharing_process_is_not_watched(folder: Path, filled: FakeArena) -> None:
    async with running(folder) as drafter:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        await drafter.attach(filled.offer, target_pid=process.pid)
        stream = drafter.pace()
        await ask(stream, 1)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert (await ask(stream, 2)).round == 2
