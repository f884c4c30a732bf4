"""The folder of a run goes with it, or with the next run where its process was killed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster import sockets
from deploy.run_folder import RunFolder
from deploy.stack import REPOSITORY

KILLED = (
    "import os; from deploy.run_folder import RunFolder; folder = RunFolder(); print(folder.path); "
    "(folder.path / 'log').write_text('x'); import sys; sys.stdout.flush(); os.kill(os.getpid(), 9)"
)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of runs lie below a folder of the test, whose path is short enough for their sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


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


def test_sockets_fit_below_it_however_long_the_path_of_tmpdir(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = place / ("x" * 40)
    far.mkdir()
    for folder, kept in ((place, True), (far, False)):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        run = RunFolder()
        assert (run.path.parent == folder) is kept
        assert len(f"{run.path}/c") <= sockets.longest(4_194_304)
        run.remove()


def test_a_folder_that_was_chosen_is_refused_where_sockets_do_not_fit() -> None:
    for length in range(2, 100):
        try:
            sockets.refuse_long("/" + "x" * (length - 1))
        except ValueError as error:
            assert length > sockets.longest(os.getpid())
            assert f"has {length} bytes" in str(error)
        else:
            assert length <= sockets.longest(os.getpid())
