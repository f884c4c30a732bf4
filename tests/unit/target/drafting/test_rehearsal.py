"""A drafter is attached once while its target captures, and is free again before the attachment that serves."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.common.pair.attach import AttachOffer
from services.target.drafting.attacher import AttacherSettings
from services.target.drafting.handoff.generations import FlagGenerations
from services.target.drafting.rehearsal import rehearsed
from tests.support.fakes_arena import FakeArena, fake_arena
from tests.unit.drafter.running import PATIENCE_S, Drafter, freed, running


class FakeOffers:
    """Offers of a made-up arena, with some fields changed; they note which generations were offered."""

    claimed_by = 0

    def __init__(self, fake: FakeArena, **changes: Any) -> None:
        self.fake, self.changes = fake, changes
        self.offered: list[int] = []

    def take_connection(self) -> socket.socket | None:
        """The connection that the drafter keeps."""
        return self.fake.listener.take_connection()

    @contextmanager
    def offer(self, generation: int) -> Iterator[AttachOffer]:
        """The arena under this generation."""
        self.offered.append(generation)
        yield replace(self.fake.renew(generation), **self.changes)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pl-") as path:
        yield Path(path)


@pytest.fixture
def fake(folder: Path) -> Iterator[FakeArena]:
    with fake_arena(folder / "side") as found:
        yield found


async def attached(drafter: Drafter) -> int:
    """Waits for an attachment; returns its generation."""
    async with asyncio.timeout(PATIENCE_S):
        while not (generation := await drafter.generation()):
            await asyncio.sleep(0.01)
    return generation


def beside(folder: Path, offers: FakeOffers, generations: FlagGenerations) -> Any:
    where = AttacherSettings(f"unix:{folder}/drafter.sock", 1.0, False)
    return rehearsed(where, offers, generations, str)


async def test_a_drafter_has_captured_its_steps_before_the_block_ends(
    folder: Path, fake: FakeArena, caplog: pytest.LogCaptureFixture
) -> None:
    offers, generations = FakeOffers(fake), FlagGenerations(2)
    async with running(folder) as drafter:
        with caplog.at_level("INFO"):
            rehearsal = beside(folder, offers, generations)
            await asyncio.to_thread(rehearsal.__enter__)
            async with asyncio.timeout(PATIENCE_S):
                while "steps captured" not in caplog.text:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(rehearsal.__exit__, None, None, None)
        assert "drafter rehearsed" in caplog.text
        await freed(drafter)
        assert [generations.take() for _ in range(2)] == [2, 3], "its flags are free again"
        await drafter.attach(fake.renew(2))
        assert await attached(drafter) == 2


async def test_nobody_waits_for_a_drafter_that_is_not_there(folder: Path, fake: FakeArena) -> None:
    offers = FakeOffers(fake)
    with beside(folder, offers, FlagGenerations(2)):
        assert offers.offered == [1]


async def test_a_refusal_is_left_to_the_attachment_that_serves(
    folder: Path, fake: FakeArena, caplog: pytest.LogCaptureFixture
) -> None:
    def rehearse() -> None:
        with beside(folder, FakeOffers(fake, slots=3), FlagGenerations(2)):
            for _ in range(round(PATIENCE_S / 0.05)):
                if "did not rehearse" in caplog.text:
                    return
                asyncio.run(asyncio.sleep(0.05))

    async with running(folder) as drafter:
        with caplog.at_level("INFO"):
            await asyncio.to_thread(rehearse)
        assert "did not rehearse" in caplog.text and "slot.length" in caplog.text
        assert not await drafter.generation()
