"""Ray that fails to start is tried once more, and then told in one sentence, however it fails."""

import traceback
from pathlib import Path

import pytest

from deploy.cluster import runtime
from deploy.stack import ServiceProcess


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Starts of Ray; as many fail as the test says."""
    seen: list[str] = []
    monkeypatch.setattr(runtime, "stop", lambda: seen.append("stop"))
    monkeypatch.setattr(runtime, "end_descendants", lambda: seen.append("end"))
    return seen


def inner() -> str:
    """The traceback of an error, as Ray hands those of its own processes on."""
    try:
        raise ValueError("no port is left")
    except ValueError:
        return traceback.format_exc()


REFUSALS: dict[str, tuple[BaseException, str]] = {
    "several lines": (
        RuntimeError("The current node timed out\nduring startup.\n   ^^^^"),
        "timed out during startup.",
    ),
    "a traceback": (RuntimeError(f"The process died:\n{inner()}"), "ValueError: no port is left"),
    "nothing": (TimeoutError(), "TimeoutError"),
    "of the system": (OSError(24, "Too many open files"), "Too many open files"),
    "a lookup": (KeyError("gcs_address"), "gcs_address"),
    "refused": (ConnectionError("Ray is trying to start at 127.0.0.1:6379, but is already running"), "already running"),
    "a check": (AssertionError("\n\n  ^^^^^\n"), "AssertionError"),
    "an exit": (SystemExit(1), "exit code 1"),
    "colours": (RuntimeError("\x1b[31mraylet died\x1b[0m ~~~~^^^^"), "raylet died"),
    "a book": (RuntimeError("word " * 5_000), "word ..."),
}


def fails(
    monkeypatch: pytest.MonkeyPatch, begun: list[str], times: int, error: BaseException = REFUSALS["several lines"][0]
) -> None:
    def init(**_: object) -> None:
        begun.append("init")
        if begun.count("init") <= times:
            raise error

    monkeypatch.setattr("ray.init", init)


def test_a_start_that_fails_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    fails(monkeypatch, begun, 1)
    runtime.start(tmp_path, 1)
    assert begun == ["init", "stop", "end", "init"], "what the first start left is ended before the second"


@pytest.mark.parametrize("way", REFUSALS)
def test_a_start_that_fails_twice_is_one_sentence(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    error, said = REFUSALS[way]
    fails(monkeypatch, begun, 9, error)
    with pytest.raises(runtime.RayStartError) as refused:
        runtime.start(tmp_path, 1)
    line = str(refused.value)
    assert begun.count("init") == 2
    assert line.startswith("Ray did not start, nor when it was tried again: ") and said in line
    assert len(line) < 400 and line.isprintable()
    assert "^" not in line and "Traceback" not in line


def test_a_cluster_of_others_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]) -> None:
    fails(monkeypatch, begun, 1)
    runtime.start(tmp_path, 1, "10.0.0.7:6379")
    assert begun == ["init", "stop", "init"]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ('{"level": "info", "message": "a"}\n{"level": "critical", "message": "b\\n c"}\n{"level": "info"}\n', "b c"),
        ('{"level": "info", "message": "a"}\ncluster: Ray did not start\n', "Ray did not start"),
        (
            '{"level": "error", "message": "a"}\ncluster: Ray did not start\nraylet: gone\n   ^^^^\n',
            "Ray did not start",
        ),
        ("raylet: gone\n   ^~~~\n", "raylet: gone"),
        ("Traceback\n  ^^^^\nValueError: bad\n", "ValueError: bad"),
        ("", "it wrote nothing"),
    ],
)
def test_what_a_process_ended_with_is_one_line(tmp_path: Path, log: str, said: str) -> None:
    process = ServiceProcess.__new__(ServiceProcess)
    process.name, process.log = "cluster", tmp_path / "log"
    process.log.write_text(log)
    assert process.last_words() == said
