"""What `pip install` of this checkout puts into site-packages, and what it brings along."""

import subprocess
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.checks.locks import normal
from tests.support.wheel import ROOT, build_wheel
from tests.unit.checks.test_locks import CONSTRAINTS, required

BUNDLE = "paceline/_bundle/"
MOST_MB = 60
LEFT_OUT = ("deploy/demo.py", "deploy/docker/", "deploy/grafana/", "deploy/helm/", "deploy/prometheus/")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return ZipFile(build_wheel(tmp_path_factory.mktemp("dist")))


@pytest.fixture(scope="module")
def about(wheel: ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def tracked(*folders: str) -> set[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {name for name in listed if not name.startswith(LEFT_OUT) and (ROOT / name).exists()}


def requirements(about: Message) -> dict[str, list[Requirement]]:
    """Requirements by extra; those of the base under nothing."""
    found: dict[str, list[Requirement]] = {extra: [] for extra in ("", *about.get_all("Provides-Extra", []))}
    for line in about.get_all("Requires-Dist", []):
        one = Requirement(line)
        extra = next((name for name in found if name and one.marker and one.marker.evaluate({"extra": name})), "")
        found[extra].append(one)
    return found


def names(*files: str) -> set[str]:
    return {package for file in files for package, _ in required(file)}


def closure(package: str, seen: set[str]) -> set[str]:
    """A package and all that it needs, as installed here."""
    if package not in seen:
        seen.add(package)
        for line in metadata.requires(package) or ():
            one = Requirement(line)
            if not one.marker or one.marker.evaluate({"extra": ""}):
                closure(normal(one.name), seen)
    return seen


def test_nothing_lies_beside_paceline(wheel: ZipFile) -> None:
    assert {name.split("/")[0].partition("-")[0] for name in wheel.namelist()} == {"paceline"}
    assert not [name for name in wheel.namelist() if name.startswith(f"{BUNDLE}services") and "test" in name]


def test_the_services_and_the_embedded_pair_are_whole(wheel: ZipFile) -> None:
    carried = {name.removeprefix(BUNDLE) for name in wheel.namelist() if name.startswith(BUNDLE)}
    assert carried == tracked("services", "deploy", "models/embedded")
    assert {name for name in wheel.namelist() if name.startswith("paceline/")} - {
        f"{BUNDLE}{name}" for name in carried
    } == tracked("paceline")


def test_there_is_one_command_and_no_ban_on_uploading(wheel: ZipFile, about: Message) -> None:
    (entry,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(entry).decode().split() == ["[console_scripts]", "paceline", "=", "paceline.commands:main"]
    assert not [one for one in about.get_all("Classifier", []) if "Private" in one]


def test_extras_bring_what_the_requirements_name(about: Message) -> None:
    found = {extra: {normal(one.name) for one in several} for extra, several in requirements(about).items()}
    assert found[""] == names("client.txt") == {"grpcio", "protobuf", "rich"}
    assert found["serve"] == names("run.txt") - found[""]
    assert found["gpu"] == names("worker.txt") - names("run.txt")
    assert found["bench"] == names("bench.txt")


def test_the_versions_that_are_tested_here_are_allowed(about: Message) -> None:
    pinned = CONSTRAINTS | dict(required("bench.txt"))
    for several in requirements(about).values():
        for one in several:
            assert one.specifier.contains(pinned[normal(one.name)]), one


def test_the_base_takes_at_most_60_mb(wheel: ZipFile, about: Message) -> None:
    size = sum(info.file_size for info in wheel.infolist())
    seen: set[str] = set()
    for one in requirements(about)[""]:
        closure(normal(one.name), seen)
    assert "torch" not in seen and "numpy" not in seen
    for package in seen:
        files = metadata.files(package) or ()
        size += sum(Path(str(file.locate())).stat().st_size for file in files if Path(str(file.locate())).is_file())
    assert size / 1e6 < MOST_MB
