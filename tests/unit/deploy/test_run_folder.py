"""The folder of a run goes with it, or with the next run where its process was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy.run_folder import RunFolder
from deploy.stack import REPOSITORY

KILLED = (
    "import os; from deploy.run_folder import RunFolder; folder = RunFolder(); print(folder.path); "
    "(folder.path / 'log').write_text('x'); import sys; sys.stdout.flush(); os.kill(os.getpid(), 9)"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of runs lie below a folder of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_goes_with_its_run_and_is_kept_by_others(place: Path) -> None:
    first, second = RunFolder(), RunFolder()
    assert first.path.stat().st_mode & 0o777 == 0o700
    first.remove()
    assert list(place.iterdir()) == [second.path]
    second.remove()
    second.remove()
    assert not list(place.iterdir())


def test_what_a_killed_run_left_goes_with_the_next(place: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=REPOSITORY, env={"TMPDIR": str(place)}, stdout=subprocess.PIPE, check=False
    )
    (left,) = place.iterdir()
    assert killed.returncode == -9 and str(left) == killed.stdout.decode().strip()
    folder = RunFolder()
    assert list(place.iterdir()) == [folder.path]
    folder.remove()


def test_folders_that_are_not_of_runs_are_left_alone(place: Path) -> None:
    (place / "paceline-other").mkdir()
    precious = place / "precious"
    precious.mkdir()
    (precious / "lock").touch()
    (place / "paceline-link").symlink_to(precious)
    RunFolder().remove()
    assert {path.name for path in place.iterdir()} == {"paceline-other", "precious", "paceline-link"}
    assert (precious / "lock").exists()
