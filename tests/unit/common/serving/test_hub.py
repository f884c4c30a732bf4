"""Folders of checkpoints by path and by hub id; the hub itself is never asked here, only its cache."""

import sys
from pathlib import Path

import huggingface_hub.constants
import pytest

from services.common.serving.hub import TOKENIZER_FILES, FolderError, hub_files, is_hub_id, local_folder
from tests.support.fakes_hub import cached


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert local_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["/nonexistent", "just-a-name", "a/b/c"])
def test_what_is_no_folder_and_no_hub_id_is_refused(name: str) -> None:
    with pytest.raises(FolderError, match=r"no such folder$"):
        local_folder(name)


def test_a_hub_id_is_found_in_the_cache_without_a_connection(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/chat_template.jinja").write_text("{{ messages }}")
    snapshot = cached(cache, "acme/rt", tmp_path / "made")
    for folder in (local_folder("acme/rt"), local_folder("acme/rt", TOKENIZER_FILES)):
        assert folder == snapshot
        assert (folder / "chat_template.jinja").is_symlink()


def test_a_hub_id_that_is_not_in_the_cache_is_refused_in_one_line(cache: Path) -> None:
    with pytest.raises(FolderError, match=r"^acme/rt: no such folder, and not found as a hub id: [^\n]+$"):
        local_folder("acme/rt")


def test_templates_are_fetched_and_weights_only_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fetch(name: str, allow_patterns: list[str], revision: str | None) -> str:
        asked.append(allow_patterns)
        return f"/cache/{name}"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert local_folder("acme/rt") == Path("/cache/acme/rt")
    local_folder("acme/rt", TOKENIZER_FILES)
    whole, edge = asked
    assert {"*.json", "*.jinja", "*.safetensors", "manifest.sha256"} == set(whole)
    assert {"*.json", "*.jinja"} == set(edge)


def test_a_revision_pins_what_is_fetched(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/config.json").write_text("{}")
    snapshot = cached(cache, "acme/rt", tmp_path / "made")
    assert local_folder(f"acme/rt@{snapshot.name}") == snapshot
    assert hub_files(f"acme/rt@{snapshot.name}").keys() == {"config.json"}
    with pytest.raises(FolderError, match=r"^acme/rt@0ff: no such folder, and not found as a hub id: [^\n]+$"):
        local_folder("acme/rt@0ff")
    assert is_hub_id("acme/rt@v1.0")
    assert not any(map(is_hub_id, ("acme/rt@", "acme@v1/rt@", "acme/rt@a/b", "@v1")))


def test_a_hub_id_needs_the_hub_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FolderError, match="install huggingface_hub"):
        local_folder("owner/model")
