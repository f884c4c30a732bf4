"""What make doctor says of MPS."""

import os
from pathlib import Path

import pytest

from deploy import doctor
from deploy.cluster.mps import CONTROL
from services.common.pair.mps import PIPES


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a test puts the driver's programs, and nothing else can be found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.setattr(doctor, "daemons", list)
    return tmp_path


def install(folder: Path, *programs: str) -> None:
    for program in programs:
        (folder / program).touch(mode=0o755)


def test_without_a_driver_mps_does_not_apply(machine: Path) -> None:
    assert doctor.check_mps().value == "not applicable"


def test_what_make_up_would_do_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "nvidia-smi")
    assert doctor.check_mps().value.startswith(f"no {CONTROL}")
    install(machine, CONTROL)
    assert doctor.check_mps().value.startswith("make up starts a daemon")
    monkeypatch.setattr(doctor, "daemons", lambda: [os.getpid()])
    assert doctor.check_mps().value.startswith("a daemon of somebody else runs")
    (machine / "control").touch()
    monkeypatch.setenv(PIPES, str(machine))
    assert doctor.check_mps().value.startswith(f"on ({machine})")
