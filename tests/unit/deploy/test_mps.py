"""Whose MPS daemon serves the pairs: one of our own, or an operator's; nobody else's is used or ended."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster import mps
from deploy.cluster.mps import CONTROL, LOGS, Mps, MpsError, Wanted, daemons, end_below
from deploy.cluster.settings import ClusterSettings
from services.common.pair.mps import PIPES, sharing
from services.common.serving import settings

# Does what the driver's program does as far as the controller sees it, and notes who called.
CONTROL_PROGRAM = """#!/bin/bash
if [ "$1" = -d ]; then
    [ -e "$STAND_IN/broken" ] && { echo "no permission" >&2; exit 1; }
    touch "$CUDA_MPS_PIPE_DIRECTORY/control"
    echo "start $CUDA_MPS_PIPE_DIRECTORY" >>"$STAND_IN/calls"
else
    read -r word
    rm "$CUDA_MPS_PIPE_DIRECTORY/control"
    echo "$word $CUDA_MPS_PIPE_DIRECTORY" >>"$STAND_IN/calls"
fi
"""


class Driver:
    """A machine with the driver's control program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / CONTROL
        self.program.write_text(CONTROL_PROGRAM)
        self.program.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        notes = self.folder / "calls"
        return [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    return made


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As found at the end, whatever a test makes of it; daemons of tests that run beside this one are not seen."""
    every = mps.daemons
    monkeypatch.setattr(mps, "daemons", lambda: [pid for pid in every() if str(tmp_path).encode() in command_of(pid)])
    for name in (PIPES, LOGS):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    # The stand-in leaves no daemon behind that could be seen.
    monkeypatch.setattr(mps, "SEEN_S", 0.0)


@pytest.fixture
def daemon_of_others(driver: Driver, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another user's daemon, under the name that it has everywhere."""
    (tmp_path / "others").mkdir()
    program = tmp_path / "others" / CONTROL
    program.write_text("#!/bin/bash\necho up\nread -r _\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.stdin.close()


def command_of(pid: int) -> bytes:
    """What a process was started as; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def started(wanted: Wanted, run_dir: Path, on_gpus: bool = True) -> Mps:
    mps = Mps(wanted, run_dir)
    mps.prepare()
    mps.start(on_gpus)
    return mps


@pytest.mark.parametrize("wanted", ["auto", "true"])
def test_a_daemon_of_our_own_has_its_own_pipes_and_quits_at_the_end(
    wanted: Wanted, driver: Driver, tmp_path: Path
) -> None:
    mps = started(wanted, tmp_path)
    pipes = os.environ[PIPES]
    assert Path(pipes).parent == tmp_path
    assert Path(pipes).stat().st_mode & 0o777 == 0o700
    assert sharing("cuda") == "mps"
    mps.stop()
    mps.stop()
    assert driver.calls == [["start", pipes], ["quit", pipes]]
    assert sharing("cuda") == "timeslice"


def test_a_daemon_of_somebody_else_is_neither_used_nor_ended(
    driver: Driver, daemon_of_others: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert daemon_of_others.pid in daemons()
    mps = started("auto", tmp_path)
    assert sharing("cuda") == "timeslice"
    mps.stop()
    assert driver.calls == []
    assert daemon_of_others.poll() is None


def test_a_daemon_that_the_operator_names_serves_and_goes_on(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "control").touch()
    monkeypatch.setenv(PIPES, str(tmp_path / "theirs"))
    mps = started("auto", tmp_path)
    assert os.environ[PIPES] == str(tmp_path / "theirs")
    assert sharing("cuda") == "mps"
    mps.stop()
    assert driver.calls == []


@pytest.mark.parametrize(("wanted", "on_gpus"), [("auto", False), ("false", True)])
def test_without_a_gpu_or_unwanted_nothing_starts(
    wanted: Wanted, on_gpus: bool, driver: Driver, tmp_path: Path
) -> None:
    started(wanted, tmp_path, on_gpus).stop()
    assert driver.calls == []


def test_a_machine_without_the_program_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    started("auto", tmp_path).stop()
    assert sharing("cuda") == "timeslice"
    with pytest.raises(MpsError, match="not installed"):
        started("true", tmp_path)


def test_a_daemon_that_does_not_start_is_an_error_only_where_it_must(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    started("auto", tmp_path).stop()
    assert sharing("cuda") == "timeslice"
    with pytest.raises(MpsError, match="does not start: no permission"):
        started("true", tmp_path)
    assert driver.calls == []


def test_a_daemon_that_does_not_quit_keeps_nobody_from_ending(
    driver: Driver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mps = started("auto", tmp_path)
    driver.program.write_text("#!/bin/bash\nexit 1\n")
    mps.stop()
    assert "does not quit" in caplog.text


def test_a_cpu_is_not_shared_by_turns() -> None:
    assert sharing("cpu") == "none"


@pytest.mark.parametrize(("flag", "wanted"), [((), "auto"), (("--mps=true",), "true"), (("--mps", "false"), "false")])
def test_the_setting(flag: tuple[str, ...], wanted: Wanted, tmp_path: Path) -> None:
    assert settings.load(ClusterSettings, ("--model", "m", *flag), {}).mps == wanted
    file = tmp_path / "x.toml"
    file.write_text("mps = true\n")
    assert settings.load(ClusterSettings, ("--model", "m", "--config", str(file)), {}).mps == "true"


def test_a_daemon_here_cannot_serve_pairs_of_another_ray() -> None:
    with pytest.raises(SystemExit):
        settings.load(ClusterSettings, ("--model", "m", "--mps", "true", "--ray-address", "h:1"), {})


def test_daemons_of_a_controller_that_was_killed_are_ended_and_no_others(tmp_path: Path) -> None:
    program = tmp_path / CONTROL
    shutil.copy("/bin/sleep", program)
    ours, others = (
        subprocess.Popen([program, "120"], env={PIPES: str(folder)})
        for folder in (tmp_path / "run/mps-1", tmp_path / "run-of-others/mps-1")
    )
    try:
        end_below(tmp_path / "run")
        assert ours.wait(30) == -signal.SIGKILL
        assert others.poll() is None
    finally:
        for process in (ours, others):
            process.kill()
            process.wait()
