"""Every entry point tells what can be set: each setting with a sentence and its default."""

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from deploy import formats, options
from deploy.settings import PAGE, SERVICES, page
from deploy.stack import StackSettings
from services.common.serving.settings import help_text, own
from services.common.serving.settings_help import EMPTY, sentences, settings_of

ROOT = Path(__file__).resolve().parents[3]
AFRESH = ("services.", "deploy.cluster", "deploy.demo", "deploy.doctor", "deploy.up")
"""What people run, in interpreters of its own; of the tools that write pages and charts two would import torch anew."""


def entry_points() -> list[str]:
    """Modules of services and deploy that people run with -m."""
    services = ROOT / "services"
    files = [*services.glob("*/__main__.py"), services / "gateway/make_key.py", *(ROOT / "deploy").rglob("*.py")]
    runnable = [path for path in files if '__name__ == "__main__"' in path.read_text()]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in runnable)


def test_the_entry_points_are_found() -> None:
    assert {"services.gateway", "services.target", "services.drafter", "deploy.cluster", "deploy.demo"} < set(
        entry_points()
    )


@pytest.fixture
def helped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[object, str, str]]:
    """What `python -m MODULE --help` ends with, and what it says."""

    def run(module: str) -> tuple[object, str, str]:
        if module.startswith(AFRESH):
            command = [sys.executable, "-m", module, "--help"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
            return done.returncode, done.stdout, done.stderr
        monkeypatch.setattr("sys.argv", [module, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("module", entry_points())
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_help_ends_well_and_says_what_every_flag_is(
    module: str, helped: Callable[[str], tuple[object, str, str]]
) -> None:
    code, told, refused = helped(module)
    assert (code, refused) == (0, "")
    flags = re.findall(r"^  (--[\w.-]+)(.*(?:\n {8,}\S.*)*)", told, re.MULTILINE)
    for flag, rest in flags:
        said = " ".join(rest.split())
        assert re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", said), f"{flag} says nothing of itself"
        takes_value = not re.match(r"(?: {2,}|\n)", rest)
        assert not takes_value or re.search(r"default: |\[|\(needed\)|; needed", said), f"{flag} states no default"


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_of_a_service_has_a_sentence_and_shows_its_default(service: str) -> None:
    cls = SERVICES[service]
    settings, shown = settings_of(cls, own(cls)), " ".join(help_text(cls).split())
    assert {one.name for one in settings} == own(cls)
    for one in settings:
        assert one.group and re.fullmatch(r"\S.*\.", one.meaning), one.name
        default = f"[{one.default}]" if one.default else "(needed)"
        assert f"{one.flag} {one.kind} {default} {one.meaning}" in shown


def test_defaults_are_those_of_the_classes() -> None:
    for cls in SERVICES.values():
        defaults = {field.name: field.default for field in fields(cls)}
        for one in settings_of(cls, own(cls)):
            value = defaults[one.name]
            assert (one.default == "") == (value is MISSING), one.name
            assert (one.default == EMPTY) == (value in ("", ())), one.name


def test_the_controller_lists_what_it_passes_on() -> None:
    text = help_text(SERVICES["Controller"])
    assert "--target.widths NUMBER,..." in text and "--drafter.ngram-max NUMBER" in text
    assert "--target.pair-id" not in text, "the controller derives it"
    assert "--target.slots" not in text, "the controller has it itself"


def test_what_a_stack_is_given_is_described() -> None:
    assert sentences(StackSettings).keys() == {field.name for field in fields(StackSettings)}


def test_the_page_of_settings_is_current() -> None:
    assert PAGE.read_text() == page(), "run python -m deploy.settings"


def test_the_table_of_options_is_current() -> None:
    assert options.PAGE.read_text() == options.page(), "run python -m deploy.options"


def test_the_table_of_packed_weights_is_current() -> None:
    assert formats.PAGE.read_text() == formats.page(), "run python -m deploy.formats"
