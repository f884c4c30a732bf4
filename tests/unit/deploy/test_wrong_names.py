"""Names that people give in place of a folder or a hub id: one line that says what is meant, and no look at the hub."""

from pathlib import Path

import pytest

from services.common.preflight.checks import Asked, places, problems
from services.common.preflight.kind import path_problem
from tests.support.tiny_checkpoints import write_tiny

MEANT = {
    "hf.co/acme/model": "did you mean acme/model?",
    "huggingface.co/acme/model/tree/main": "did you mean acme/model?",
    "models--acme--a-model": "did you mean acme/a-model?",
    "C:\\models\\a": "paceline runs on Linux; in WSL that is /mnt/c/models/a",
    "acme/A model 4B": "did you mean acme/A-model-4B?",
    "acme/model ": "did you mean acme/model?",
    "acme/model/": "did you mean acme/model?",
    "acme\\model": "did you mean acme/model?",
    "~/nothere": "give the folder that holds config.json, or a model of the hub as owner/name",
    "'acme/model'": "leave out the quotes",
    "../nothere": "give the folder that holds config.json, or a model of the hub as owner/name",
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path))
    problem = path_problem(name)
    assert problem is not None
    assert (problem.sentence, problem.remedy) == ("no such folder", MEANT[name])


@pytest.mark.parametrize("name", ["a" * 300, "a" * 5000, "b/" * 3000, "é" * 200])
def test_a_name_that_no_system_has_is_one_line(name: str, tmp_path: Path) -> None:
    for asked in (Asked(name), Asked(str(write_tiny(tmp_path / "right").target), name)):
        (line,) = [found.line for found in problems(asked, (places,))]
        assert "no such folder" in line and len(line) < 600


def test_a_word_is_not_told_to_mean_itself() -> None:
    """Names of shipped models are none of drafters."""
    for word in ("embedded", "smollm2"):
        found = path_problem(word)
        assert found is not None and "did you mean" not in found.remedy


def test_a_folder_is_itself_whatever_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hf.co/acme/model", "models--acme--model", "acme/a model"):
        (tmp_path / name).mkdir(parents=True)
        assert path_problem(name) is None


def test_an_address_with_the_hubs_short_name_is_one() -> None:
    problem = path_problem("hf:acme/model")
    assert problem is not None
    assert problem.line == "hf:acme/model: is an address, not a name; did you mean acme/model?"
