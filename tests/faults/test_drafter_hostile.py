"""F2 and F3: drafters that hang, answer late, or write whatever they like. Drafts are advice: the text stays."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.common.pair import attach
from services.common.pair.arena import MemfdArena
from services.common.pair.attach_convert import offer_from_pb
from services.common.pair.side_socket import fetch_descriptors
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.faults.conftest import Size
from tests.faults.rest import at_rest, defects_in, processes_of
from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.integration.test_pair import plain, requests
from tests.support.fakes_drafter import FakeDrafter
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import TinyPair, write_tiny

PACED = {**ENVIRONMENT, "PACELINE_SYNC_POINTS": "plan:pace=0.01"}
VOCAB = 320


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_tiny(tmp_path_factory.mktemp("models"), seed=3)


@asynccontextmanager
async def running(
    models: TinyPair,
    *flags: str,
    environment: Mapping[str, str] = ENVIRONMENT,
    drafter_flags: Sequence[str] = (),
    address: str = "",
) -> AsyncIterator[PairProcesses]:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        pair = PairProcesses(Path(name), models, flags, environment, drafter_flags, address)
        try:
            await asyncio.to_thread(pair.wait_ready)
            yield pair
            await asyncio.to_thread(pair.until, lambda: at_rest(pair), "rest")
        finally:
            await asyncio.to_thread(pair.stop)
            defects, orphans = defects_in(pair.folder), processes_of(pair.folder)
    assert not defects, defects
    assert not orphans, orphans


@pytest.mark.parametrize("killed", [pytest.param(True, marks=pytest.mark.whole), False])  # by wire it is killed
async def test_f2_a_stopped_drafter_is_quarantined(
    models: TinyPair, killed: bool, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """With its pid known it is killed; else it is left behind, and what it says after SIGCONT counts for nothing."""
    flags = ("--watchdog-s", "0.5", "--kill-quarantined", str(killed).lower())
    async with running(models, *flags, environment=PACED) as pair:
        frames = requests(4, 150)
        expected = await plain(pair, frames)
        trials = size(1, 10)
        for _ in range(trials):
            async with SessionClient(pair.bound["grpc"]) as client:
                for frame in frames:
                    await client.start(frame)
                for received in client.requests.values():
                    await received.at_least(5)
                await _stop_drafter(pair, killed)
                for name, received in client.requests.items():
                    await received.ended()
                    assert received.tokens == expected[name]
    report_counts("drafters_stopped", trials)


async def _stop_drafter(pair: PairProcesses, killed: bool) -> None:
    """Stops the drafter that is attached, and waits until the next one is."""
    generation = (await asyncio.to_thread(pair.describe)).generation
    drafter = pair.drafter.process
    drafter.send_signal(signal.SIGSTOP)
    if killed:
        assert await asyncio.to_thread(drafter.wait, 60) == -signal.SIGKILL
        pair.turn_to(pair.add_drafter())
    else:
        await asyncio.to_thread(pair.until, lambda: pair.describe().generation == 0, "quarantine")
        drafter.send_signal(signal.SIGCONT)
    await asyncio.to_thread(pair.wait_attached, generation + 1)


class HostileDrafter(FakeDrafter):
    """Maps the real arena and writes nonsense into the mailbox: wrong ids, wrong tags, torn rows, false answers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.arena: MemfdArena | None = None
        self.replies = 0
        self._random = random.Random(seed)
        super().__init__(folder)

    def Attach(self, request: pb.AttachRequest, context: object) -> pb.AttachResponse:
        offer = offer_from_pb(request)
        assert offer.layout is not None
        fetched = fetch_descriptors(offer.side_socket, offer.generation, offer.nonce, len(offer.layout.segments))
        fetched.connection.close()
        self.arena = MemfdArena.map(offer.layout, fetched.descriptors, attach.DRAFTER_WRITES)
        return super().Attach(request, context)  # type: ignore[arg-type]

    def answer(self, request: pb.PaceRequest) -> list[pb.PaceResponse]:
        self.replies += 1
        self._scribble(request)
        lies = [
            pb.PaceResponse(
                generation=request.generation + self._random.randint(-1, 1), round=self._random.getrandbits(63)
            )
            for _ in range(self._random.randrange(3))
        ]
        return [*lies, pb.PaceResponse(generation=request.generation, round=request.round)]

    def _scribble(self, request: pb.PaceRequest) -> None:
        assert self.arena is not None
        tokens_SK, tag_S3, pick = self.arena.tensor(attach.TOKENS), self.arena.tensor(attach.TAG), self._random
        epoch_S = self.arena.tensor(attach.EPOCH)
        for slot in range(tokens_SK.shape[0]):
            kind = pick.randrange(4)
            for draft in range(tokens_SK.shape[1]):
                wild = pick.choice((-1, -(2**31), VOCAB, 2**31 - 1, pick.randrange(VOCAB)))
                tokens_SK[slot, draft] = pick.randrange(VOCAB) if kind < 2 else wild
            right = (request.round, int(epoch_S[slot]), request.generation)
            tag = list(right)
            if kind % 2:
                tag[pick.randrange(3)] += pick.choice((-1, 1, 2**40))
            for part in range(3):
                tag_S3[slot, part] = tag[part]


async def test_f3_a_hostile_drafter_changes_nothing(
    models: TinyPair, seed: int, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        hostile = HostileDrafter(Path(name), seed)
        try:
            async with running(models, "--drafter-address", hostile.address) as pair:
                frames = requests(4, 100)
                expected = await plain(pair, frames)
                while hostile.replies < size(300, 10_000):
                    async with SessionClient(pair.bound["grpc"]) as client:
                        for frame in frames:
                            await client.start(frame)
                        for received in client.requests.values():
                            await received.ended()
                        assert {each: got.tokens for each, got in client.requests.items()} == expected
                state = await asyncio.to_thread(pair.describe)
                assert state.handoff_mode == "host", "it keeps no connection to the side socket"
                assert state.generation == 1, "false answers are skipped, not punished"
                assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
        finally:
            hostile.stop()
    report_counts("hostile_replies", hostile.replies)
