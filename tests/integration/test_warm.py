"""A service that is forked from a process with its libraries is started, told of and ended like one of its own."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import StackError
from tests.integration.pair import ENVIRONMENT
from tests.support import warm
from tests.support.warm import START_S, WarmProcess


def command(folder: Path, name: str) -> list[str]:
    return ["services.drafter", "--proposer", "ngram", "--grpc", f"unix:{folder}/{name}"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


@pytest.fixture
def drafter(folder: Path) -> Iterator[WarmProcess]:
    process = WarmProcess("drafter", command(folder, "d"), folder, ENVIRONMENT)
    try:
        yield process
    finally:
        process.stop(0.0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_its_end_is_told(drafter: WarmProcess, number: int, code: int) -> None:
    assert drafter.bound(START_S)["grpc"]
    assert drafter.process.poll() is None
    drafter.process.send_signal(number)
    assert drafter.process.wait(60.0) == code
    assert drafter.process.poll() == code
    drafter.process.send_signal(signal.SIGKILL)


def test_what_it_refuses_is_in_its_log(tmp_path: Path) -> None:
    process = WarmProcess("drafter", ["services.drafter", "--proposer", "nothing"], tmp_path, ENVIRONMENT)
    assert process.process.wait(60.0) == 2
    with pytest.raises(StackError, match="proposer"):
        process.check()


def test_a_service_whose_imports_start_threads_is_started_afresh(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setitem(warm.MODULES, "services.drafter", ("threaded",))
    process = WarmProcess("drafter", command(folder, "d"), folder, ENVIRONMENT)
    try:
        assert process.bound(START_S)["grpc"]
        assert isinstance(process.process, subprocess.Popen)
    finally:
        process.stop(0.0)


def test_two_have_variables_and_sessions_of_their_own(folder: Path) -> None:
    addresses = [f"unix:{folder}/{name}" for name in "ab"]
    environments = [{**ENVIRONMENT, "PACELINE_GRPC": address} for address in addresses]
    bare = ["services.drafter", "--proposer", "ngram"]
    pair = [WarmProcess(str(index), bare, folder, each) for index, each in enumerate(environments)]
    try:
        assert [process.bound(START_S)["grpc"] for process in pair] == addresses
        for process in pair:
            state = Path(f"/proc/{process.process.pid}")
            assert (state / "stat").read_text().rpartition(")")[2].split()[3] == str(process.process.pid)
            assert (state / "fd" / "0").readlink() == Path("/dev/null")
    finally:
        assert [process.stop(30.0) for process in pair] == [0, 0]


def test_an_end_that_is_told_with_the_id_is_an_end() -> None:
    """A service that refuses its settings may have ended before anybody reads who it is."""
    told, tells = os.pipe()
    os.write(tells, b"12345\n2\n")
    process = warm.Forked(told)
    assert (process.pid, process.poll(), process.wait(60.0)) == (12345, 2, 2)
    os.close(tells)
