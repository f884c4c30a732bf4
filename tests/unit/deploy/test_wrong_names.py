"""Names that people give in place of a folder or a hub id: one line that says what is meant, and no look at the hub."""

from pathlib import Path

import pytest

from services.common.preflight.kind import path_problem

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


def test_a_folder_is_itself_whatever_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hf.co/acme/model", "models--acme--model", "acme/a model"):
        (tmp_path / name).mkdir(parents=True)
        assert path_problem(name) is None


def test_an_address_with_the_hubs_short_name_is_one() -> None:
    problem = path_problem("hf:acme/model")
    assert problem is not None
    assert problem.line == "hf:acme/model: is an address, not a name; did you mean acme/model?"
