"""One order of sources, and no silent mistake."""

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from services.common.serving import settings


@dataclass(frozen=True)
class Example:
    grpc: str = "127.0.0.1:0"
    slots: int = 8
    share: float = 0.5
    eager: bool = False
    watch: tuple[str, ...] = ()
    widths: tuple[int, ...] = (1, 4, 8)
    device: Literal["cpu", "cuda"] = "cpu"
    limit: int | None = None
    api_key: str = field(default="", metadata={"secret": True})


def load(*argv: str, **environ: str) -> Example:
    return settings.load(Example, argv, environ)


def test_defaults() -> None:
    assert load() == Example()


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('slots = 1\nshare = 0.1\ngrpc = "a:1"\n')
    got = load("--config", str(file), "--slots=3", PACELINE_SLOTS="2", PACELINE_SHARE="0.2")
    assert (got.slots, got.share, got.grpc) == (3, 0.2, "a:1")


def test_types(tmp_path: Path) -> None:
    got = load("--watch", "a:1,b:2", "--widths", "1,16", "--eager", "true", "--limit", "5", "--device=cuda")
    assert got == Example(watch=("a:1", "b:2"), widths=(1, 16), eager=True, limit=5, device="cuda")
    file = tmp_path / "x.toml"
    file.write_text("widths = [1, 2]\neager = true\n")
    assert load("--config", str(file)) == Example(widths=(1, 2), eager=True)


@pytest.mark.parametrize(
    "argv",
    [
        ("--no-such", "1"),
        ("--slots", "many"),
        ("--slots", "1.5"),
        ("--eager", "perhaps"),
        ("--device", "tpu"),
        ("slots", "1"),
        ("--config", "/no/such/file.toml"),
        ("--slot", "1"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        load(*argv)
    assert raised.value.code == 2
    assert capsys.readouterr().err.startswith("settings: ")


def test_an_unknown_variable_fails_but_only_ours_are_read() -> None:
    with pytest.raises(SystemExit):
        load(PACELINE_SLOTZ="1")
    assert load(SLOTS="1") == Example()


def test_a_secret_comes_from_a_file_and_is_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    file.write_text("hunter2\n")
    assert load("--api-key-file", str(file)).api_key == "hunter2"
    with pytest.raises(SystemExit) as raised:
        load("--api-key-file", str(file), "--print-config")
    assert raised.value.code == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["api_key"] == "***"
    assert shown["slots"] == 8


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        load().slots = 1  # type: ignore[misc]


WORKER = settings.Group("worker", Example, own={"slots": "slots", "device": "place"}, decided={"grpc": "port"})
KEY = "hunter2"


@dataclass(frozen=True)
class Holder:
    """Passes settings on to workers, which are Examples."""

    slots: int = 2
    place: str = "cpu"
    worker: str = "folder"
    worker_settings: Mapping[str, Any] = field(default_factory=dict, metadata={settings.GROUP: WORKER})


def held(*argv: str, **environ: str) -> Holder:
    return settings.load(Holder, argv, environ)


def test_settings_of_another_service_are_passed_on_in_its_own_types(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("slots = 3\n[worker]\nwidths = [1, 2]\nshare = 0.25\neager = false\n")
    got = held("--config", str(file), "--worker.eager", "true", PACELINE_WORKER__SHARE="0.125", PACELINE_WORKER="w")
    assert got == Holder(3, "cpu", "w", {"widths": (1, 2), "share": 0.125, "eager": True})


def test_what_the_holder_has_itself_is_one_setting_under_two_names() -> None:
    assert held("--worker.slots", "7", "--worker.device=cuda", PACELINE_SLOTS="5") == Holder(7, "cuda")
    assert held("--slots", "6", PACELINE_WORKER__SLOTS="7") == Holder(6)


def test_what_is_passed_on_comes_from_files_too_and_secrets_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (("key", KEY), ("slots", "9")):
        (tmp_path / name).write_text(content)
    flags = ("--worker.api-key-file", str(tmp_path / "key"), "--worker.slots-file", str(tmp_path / "slots"))
    assert held(*flags) == Holder(slots=9, worker_settings={"api_key": KEY})
    with pytest.raises(SystemExit):
        held(*flags, "--print-config")
    assert json.loads(capsys.readouterr().out)["worker_settings"] == {"api_key": "***"}


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--worker.width", "1", "worker.width: there is no such setting; "),
        ("--worker.widths", "a", "worker.widths: must be a whole number"),
        ("--worker.grpc", "h:1", "worker.grpc: is derived from port"),
        ("--worker.grpc-file", "/dev/null", "worker.grpc_file: is derived from port"),
        ("--waiter.widths", "1", "waiter.widths: there is no such setting; "),
        ("--worker-settings", "1", "worker_settings: there is no such setting; "),
    ],
)
def test_mistakes_in_what_is_passed_on_are_named(
    flag: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        held(flag, value)
    assert capsys.readouterr().err.startswith(f"settings: {said}")


def test_a_check_of_the_caller_refuses_as_the_settings_do(capsys: pytest.CaptureFixture[str]) -> None:
    def check(holder: Holder) -> None:
        raise ValueError(f"no room for {holder.slots}")

    with pytest.raises(SystemExit):
        settings.load(Holder, (), {}, check)
    assert capsys.readouterr().err == "settings: no room for 2\n"


def test_variables_of_other_services_are_told_apart() -> None:
    ours = {"PACELINE_SLOTS": "1", "PACELINE_WORKER__WIDTHS": "1", "PACELINE_API_KEY_FILE": "f", "HOME": "/"}
    assert settings.unknown(Holder, ours) == {"PACELINE_API_KEY_FILE"}
    assert settings.unknown(Example, ours) == {"PACELINE_WORKER__WIDTHS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """Settings that say what they are.

    Raises:
        ValueError: there is nothing to watch.
    """

    # Model
    tokenizer: str
    """Folder with
    tokenizer.json."""

    # Limits
    wait_s: float = 0.5
    """Longest wait."""
    watch: tuple[str, ...] = ()
    """Addresses to watch."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where it runs."""
    key: str = field(default="", repr=False, metadata={"secret": True})
    """What callers must know."""

    def __post_init__(self) -> None:
        if not self.watch:
            raise ValueError("watch: nothing to watch")


def ended(cls: type[Any], *argv: str) -> int:
    with pytest.raises(SystemExit) as raised:
        settings.load(cls, argv, {})
    assert isinstance(raised.value.code, int)
    return raised.value.code


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_setting_in_its_group(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(Documented, "--no-such", "1", flag) == 0
    told = capsys.readouterr()
    assert "Settings that say what they are." in told.out and "Raises" not in told.out
    assert told.out.endswith(
        """
Model:
  --tokenizer TEXT  (needed)
        Folder with tokenizer.json.

Limits:
  --wait-s SECONDS  [0.5]
        Longest wait.
  --watch TEXT,...  [empty]
        Addresses to watch.
  --device cpu|cuda  [cpu]
        Where it runs.
  --key TEXT  [empty]
        What callers must know.
"""
    )


def test_what_is_needed_and_missing_is_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(Documented, "--watch", "a:1") == 2
    said = "settings: tokenizer: is needed (--tokenizer): Folder with tokenizer.json. --help lists every setting.\n"
    assert capsys.readouterr().err == said


def test_the_configuration_is_printed_even_when_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(Documented, "--print-config", "--tokenizer", "folder", "--key", KEY) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {"tokenizer": "folder", "wait_s": 0.5, "watch": [], "device": "cpu", "key": "***"}
    assert told.err == "settings: watch: nothing to watch\n"
    assert ended(Documented, "--print-config") == 0
    assert json.loads(capsys.readouterr().out)["tokenizer"] is None


def test_a_value_of_the_wrong_type_is_no_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(Documented, "--print-config", "--wait-s", "long") == 2
    assert capsys.readouterr() == ("", "settings: wait_s: must be a number, not 'long'\n")
