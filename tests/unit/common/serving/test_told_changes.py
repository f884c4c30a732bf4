"""What a service reads again is told both ways: each trouble once when it begins, and its end once when it is over."""

import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from services.common.serving.followed import FollowedFile
from services.common.serving.rotation import Rotation
from tests.support.told import told

MISSING, BAD = "missing", "bad"
Change = Callable[[str], Awaitable[None]]


def followed(path: Path) -> Change:
    """Puts the file into a state and looks at it."""

    def take(data: bytes) -> None:
        if data == BAD.encode():
            raise ValueError("it is bad")

    path.write_text("good 0")
    file = FollowedFile(path, take, lambda error: logging.getLogger("told").error("stays: %s", error))

    async def change(state: str) -> None:
        path.unlink(missing_ok=True)
        if state != MISSING:
            path.write_text(state)
        await file.look()

    return change


def rotating(path: Path) -> Change:
    """The same of a file of which certificates are made."""
    path.write_text("good 0")
    versions = {"good 0": 0}

    def make() -> str:
        text = path.read_text()
        if text == BAD:
            raise OSError("it is bad")
        return text

    def version() -> tuple[int, ...]:
        return (versions.setdefault(path.read_text(), len(versions)),)

    rotation = Rotation(version, make)

    async def change(state: str) -> None:
        path.unlink(missing_ok=True)
        if state != MISSING:
            path.write_text(state)
        rotation.changed()
        assert state in (MISSING, BAD) or rotation.present == state

    return change


@pytest.mark.parametrize("made", [followed, rotating])
async def test_troubles_and_their_ends_are_told_once(
    made: Callable[[Path], Change], tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that stay, change, become bad, go away and come back as they were, in any order."""
    print(f"seed {seed}")
    caplog.set_level(logging.INFO)
    chance, change, state, good = random.Random(seed), made(tmp_path / "file"), "good 0", "good 0"
    for number in range(200):
        before, state = state, chance.choice((MISSING, BAD, good, f"good {number + 1}", state))
        caplog.clear()
        for _ in range(chance.randint(1, 3)):
            await change(state)
        wanted = [] if state == before else ["ERROR"] if state in (MISSING, BAD) else ["INFO"]
        said = [record.levelname for record in told(caplog, "told", "services.common.serving")]
        assert said == wanted, (before, state)
        good = good if state in (MISSING, BAD) else state
