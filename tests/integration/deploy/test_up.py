"""`make up` from outside: a refusal ends it with the reason, a signal ends it at any moment, and nothing is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType

import pytest

from deploy.stack import EMBEDDED, REPOSITORY
from paceline import Client, Options
from services.common.model.families import FAMILIES
from tests.support.pace import kept, within_s
from tests.support.tiny_checkpoints import write_tiny

WAIT_S, LOOK_S = 240.0, 0.02
ENDED_S = 20.0
# A line on the terminal, seconds after it, and the signal that comes then.
MOMENTS = [
    ("starting Ray", 2.0, signal.SIGTERM),
    ("waiting for the pair", 1.0, signal.SIGINT),
    ("starting Ray", 0.0, signal.SIGINT),
    ("starting Ray", 4.0, signal.SIGINT),
    ("waiting for the pair", 0.0, signal.SIGTERM),
    ("waiting for the pair", 3.0, signal.SIGTERM),
    ("ready; Ctrl-C stops it", 0.0, signal.SIGTERM),
    ("ready; Ctrl-C stops it", 2.0, signal.SIGINT),
]


@contextmanager
def heard(number: signal.Signals) -> Iterator[None]:
    """Has processes that start within hear a signal, where whoever runs the tests has it ignored, as nohup does."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


class Up:
    """A running `make up` with a folder for temporary files of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._output = folder / "output"
        with heard(signal.SIGHUP), self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.up", "--address", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags],
                cwd=REPOSITORY,
                env={**os.environ, "TMPDIR": str(folder)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions = {self.process.pid}

    def __enter__(self) -> "Up":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A test that failed leaves nothing either."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)

    @property
    def lines(self) -> list[str]:
        """What the terminal shows."""
        return self._output.read_text().splitlines()

    def until(self, holds: Callable[[], object]) -> None:
        """Waits, and notes the sessions of the services that are started meanwhile."""
        end = time.monotonic() + WAIT_S
        while True:
            self._sessions |= sessions_below(self.process.pid)
            if holds():
                return
            assert time.monotonic() < end, self.lines
            time.sleep(LOOK_S)

    def says(self, text: str) -> bool:
        """A line holds the text."""
        return any(text in line for line in self.lines)

    def ends(self) -> int:
        """Waits for the end; its exit code."""
        self.until(lambda: self.process.poll() is not None)
        return self.process.wait()

    def left(self) -> list[int]:
        """Processes of every session that was started here."""
        return [pid for pid, _, session in living() if session in self._sessions]


def sessions_below(pid: int) -> set[int]:
    """The sessions that children of a process lead; the list of all processes takes too long for each look."""
    assert Path(f"/proc/self/task/{os.getpid()}/children").exists(), "this kernel does not list children"
    found: set[int] = set()
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(child) for child in (thread / "children").read_text().split()}
    except OSError:
        pass  # it, or a thread of it, has ended
    return found


def living() -> Iterator[tuple[int, int, int]]:
    """Process, parent and session of everything that runs."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if state not in "ZX":
            yield int(entry.name), int(parent), int(session)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, for the sockets of Ray."""
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_a_refused_checkpoint_ends_it_before_ray_with_the_loaders_own_words(folder: Path) -> None:
    model = Path(shutil.copytree(EMBEDDED / "target", folder / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["OtherForCausalLM"]}))
    with Up(folder, "--model", str(model)) as up:
        assert up.ends() == 1
        assert up.lines == [
            f"{model / 'config.json'}: architectures: ['OtherForCausalLM'] is not supported, only {sorted(FAMILIES)}"
        ]
        assert not up.left()
        assert not list(folder.glob("paceline-*"))


def test_another_family_is_served_with_ngram_drafts(folder: Path, full: bool) -> None:
    """No drafter is named. Lines of the terminal tell the gateway's address."""
    for family in ("llama", "qwen2", "gemma3_text") if full else ("llama",):
        model = write_tiny(folder / family, seed=3, family=family).target
        with Up(folder, "--model", str(model)) as up:
            up.until(lambda: up.says("ready; Ctrl-C stops it") or up.process.poll() is not None)
            (address,) = (line.split()[1] for line in up.lines if line.startswith("gateway "))
            asked = [Options(max_tokens=64, ignore_eos=True, speculation=on) for on in (True, False)]
            with Client(address) as client:
                drafted, plain = (client.generate("ab ab ab ab", options) for options in asked)
            assert drafted.tokens == plain.tokens
            assert (len(plain.tokens), plain.accepted) == (64, 0)
            assert drafted.accepted > 0
            ends_soon(up, signal.SIGTERM, folder)


def ends_soon(up: Up, number: signal.Signals, folder: Path) -> None:
    """A signal ends it within three seconds, and nothing is left."""
    up.until(lambda: True)
    bound_s = within_s(3.0)
    begun = time.monotonic()
    up.process.send_signal(number)
    assert up.ends() == 0, up.lines
    assert kept(3.0, bound_s, time.monotonic() - begun)
    assert not up.left()
    assert not list(folder.glob("paceline-*"))


@pytest.mark.whole
def test_a_signal_ends_it_within_three_seconds(folder: Path) -> None:
    """While a pair serves the test above sends one, and while Ray starts the test below; one handler takes all."""
    for moment, after_s, number in MOMENTS:
        with Up(folder, "--model", "embedded") as up:
            up.until(partial(up.says, moment))
            time.sleep(after_s)
            ends_soon(up, number, folder)


def test_a_kill_without_a_word_leaves_nothing_either(folder: Path, full: bool) -> None:
    """Gateway, controller, Ray and the pair see that it is gone; the next run removes its folder."""
    for moment, after_s, _ in MOMENTS if full else MOMENTS[1:2]:
        with Up(folder, "--model", "embedded") as up:
            up.until(partial(up.says, moment))
            time.sleep(after_s)
            up.until(lambda: True)
            up.process.kill()
            up.ends()
            end = time.monotonic() + ENDED_S
            while (left := up.left()) and time.monotonic() < end:
                time.sleep(0.1)
            assert not left, moment
    with Up(folder, "--model", "embedded", "--address", "127.0.0.1:0") as up:
        up.until(partial(up.says, "starting Ray"))
        assert len(list(folder.glob("paceline-*"))) == 1
        ends_soon(up, signal.SIGHUP, folder)
