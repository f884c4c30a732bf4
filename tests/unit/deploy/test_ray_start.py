"""Ray that fails to start is tried once more, and then told in one sentence."""

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


def fails(monkeypatch: pytest.MonkeyPatch, begun: list[str], times: int) -> None:
    def init(**_: object) -> None:
        begun.append("init")
        if begun.count("init") <= times:
            raise RuntimeError("The current node timed out\nduring startup.\n   ^^^^")

    monkeypatch.setattr("ray.init", init)


def test_a_start_that_fails_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    fails(monkeypatch, begun, 1)
    runtime.start(tmp_path, 1)
    assert begun == ["init", "stop", "end", "init"], "what the first start left is ended before the second"


def test_a_start_that_fails_twice_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    fails(monkeypatch, begun, 9)
    with pytest.raises(runtime.RayStartError) as refused:
        runtime.start(tmp_path, 1)
    assert begun.count("init") == 2
    assert str(refused.value).startswith("Ray did not start, nor when it was tried again: The current node timed out")
    assert "\n" not in str(refused.value)


def test_a_cluster_of_others_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]) -> None:
    fails(monkeypatch, begun, 1)
    runtime.start(tmp_path, 1, "10.0.0.7:6379")
    assert begun == ["init", "stop", "init"]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ('{"level": "info", "message": "a"}\n{"level": "critical", "message": "b\\n c"}\n{"level": "info"}\n', "b c"),
        ('{"level": "info", "message": "a"}\ncluster: Ray did not start\n', "Ray did not start"),
        ("Traceback\n  ^^^^\nValueError: bad\n", "ValueError: bad"),
        ("", "it wrote nothing"),
    ],
)
def test_what_a_process_ended_with_is_one_line(tmp_path: Path, log: str, said: str) -> None:
    process = ServiceProcess.__new__(ServiceProcess)
    process.name, process.log = "cluster", tmp_path / "log"
    process.log.write_text(log)
    assert process.last_words() == said
