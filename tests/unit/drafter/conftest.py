"""A short folder for sockets, and fake arenas in it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes_arena import FakeArena, fake_arena


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="pl-") as path:
        yield Path(path)


@pytest.fixture
def fake(folder: Path) -> Iterator[FakeArena]:
    """An arena without weights."""
    with fake_arena(folder / "side") as found:
        yield found
