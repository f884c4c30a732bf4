"""F2 and F3 by wire: drafters are stopped and killed, or answer whatever they like in PaceResponse. The text stays."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.common.pair.wire import MAX_ANSWER_BYTES
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.faults.conftest import Size
from tests.faults.test_drafter_hostile import PACED, VOCAB, running
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import plain, requests
from tests.integration.test_wire import ALONE
from tests.support.fakes_drafter import FakeDrafter
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import TinyPair, write_tiny
from tests.support.warm import START_S

WITH_MEMORY = pytest.param(("--handoff", "wire"), (), id="with-memory", marks=pytest.mark.whole)
WITHOUT_MEMORY = pytest.param(ALONE, ("--proposer", "ngram"), id="without-memory")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_tiny(tmp_path_factory.mktemp("models"), seed=3)


@pytest.mark.parametrize(("flags", "drafter_flags"), [WITH_MEMORY, WITHOUT_MEMORY])
async def test_f2_drafters_stopped_and_killed_by_wire(
    models: TinyPair,
    flags: Sequence[str],
    drafter_flags: Sequence[str],
    size: Size,
    report_counts: Callable[[str, int], None],
) -> None:
    """The one that is stopped is late and killed; the next one is sent all texts again, and dies as well."""
    more = (*flags, "--watchdog-s", "0.5")
    async with running(models, *more, environment=PACED, drafter_flags=drafter_flags) as pair:
        frames = requests(4, 150)
        expected = await plain(pair, frames)
        trials = size(1, 10)
        for _ in range(trials):
            spares = [pair.add_drafter(), pair.add_drafter()]
            for spare in spares:
                await asyncio.to_thread(pair.drafters[spare].bound, START_S)
            async with SessionClient(pair.bound["grpc"]) as client:
                for frame in frames:
                    await client.start(frame)
                for received in client.requests.values():
                    await received.at_least(5)
                for blow, spare in zip((signal.SIGSTOP, signal.SIGKILL), spares, strict=True):
                    await _strike(pair, blow, spare)
                for name, received in client.requests.items():
                    await received.ended()
                    assert received.tokens == expected[name]
    report_counts("drafters_struck_by_wire", 2 * trials)


async def _strike(pair: PairProcesses, blow: signal.Signals, spare: int) -> None:
    """Hits the drafter that is attached, and waits until the next one drafts."""
    before = await asyncio.to_thread(pair.describe)
    drafter = pair.drafter.process
    drafter.send_signal(blow)
    assert await asyncio.to_thread(drafter.wait, 60) == -signal.SIGKILL
    pair.turn_to(spare)
    await asyncio.to_thread(pair.wait_attached, before.generation + 1)
    here = (await asyncio.to_thread(pair.describe)).rounds[-1].number
    await asyncio.to_thread(
        pair.until, lambda: any(each.width > 1 for each in pair.describe().rounds if each.number > here), "speculation"
    )


class LyingDrafter(FakeDrafter):
    """Knows the texts, and answers rounds with rows and messages of every wrong kind beside right ones."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.truths: list[list[int]] = []
        self.replies = self.giants = 0
        self._texts: dict[int, tuple[int, list[int]]] = {}
        self._random = random.Random(seed)
        super().__init__(folder)

    def answer(self, request: pb.PaceRequest) -> list[pb.PaceResponse]:
        for text in request.texts:
            known = self._texts.get(text.slot, (0, []))[1][: text.start]
            self._texts[text.slot] = (text.epoch, [*known, *text.token_ids])
        self.replies += 1
        drafts = [self._row(slot, request.width - 1) for slot in request.slots]
        kind = self._random.randrange(12)
        if kind == 0:
            drafts *= 200
        elif kind == 1:
            drafts = []
        elif kind == 2:
            drafts[0].token_ids.extend([1] * 10_000)
        elif kind == 3 and self._random.random() < 0.2:
            self.giants += 1
            drafts[0].token_ids.extend([2**32 - 1] * MAX_ANSWER_BYTES)
        right = pb.PaceResponse(generation=request.generation, round=request.round, drafts=drafts)
        stale = pb.PaceResponse(
            generation=request.generation - self._random.randint(0, 1), round=request.round - 1, drafts=drafts
        )
        return [stale, right]

    def _row(self, slot: int, count: int) -> pb.RowDraft:
        pick = self._random
        epoch, text = self._texts[slot]
        tokens = next((truth[len(text) :] for truth in self.truths if truth[: len(text)] == text), [])
        row = pb.RowDraft(slot=slot, epoch=epoch, token_ids=[*tokens, *[0] * count][:count])
        kind = pick.randrange(10)
        if kind == 0:
            row.slot = pick.choice((VOCAB, 2**32 - 1))
        elif kind == 1:
            row.epoch = pick.choice((0, epoch + 1, 2**64 - 1))
        elif kind == 2:
            row.token_ids[pick.randrange(count)] = pick.choice((VOCAB, 2**31, 2**32 - 1))
        elif kind == 3:
            row.token_ids[pick.randrange(count)] = pick.randrange(VOCAB)
        elif kind == 4:
            del row.token_ids[pick.randrange(count) :]
        return row


async def test_f3_lies_in_answers_change_nothing(
    models: TinyPair, seed: int, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        lying = LyingDrafter(Path(name), seed)
        try:
            async with running(models, *ALONE, address=lying.address) as pair:
                frames = requests(4, 100)
                expected = await plain(pair, frames)
                lying.truths = [[*frame.token_ids, *expected[frame.request_id]] for frame in frames]
                accepted = 0
                while lying.replies < size(100, 10_000) or not lying.giants:
                    async with SessionClient(pair.bound["grpc"]) as client:
                        for frame in frames:
                            await client.start(frame)
                        for received in client.requests.values():
                            accepted += (await received.ended()).speculation.accepted
                        assert {each: got.tokens for each, got in client.requests.items()} == expected
                await asyncio.to_thread(pair.wait_attached, lying.giants + 1)
                state = await asyncio.to_thread(pair.describe)
                assert state.handoff_mode == "wire"
                assert accepted > 0, "what is right among the lies is believed"
                assert state.generation > lying.giants, "a giant answer ends its attachment, nothing else does"
                assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
        finally:
            lying.stop()
    report_counts("lying_answers", lying.replies)
