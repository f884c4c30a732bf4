"""A folder that differs from its own manifest is told by pre-flight, before anything starts."""

import json
import shutil
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from services.common.preflight import weights
from services.common.preflight.checks import Asked, problems

TARGET, DRAFTER = EMBEDDED / "target", EMBEDDED / "drafter"


def told(target: Path, drafter: Path = DRAFTER) -> list[str]:
    return [found.line for found in problems(Asked(str(target), str(drafter), "cpu")) if found.fatal]


def edited(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"_name_or_path": "mine"}))


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "change"), [("config.json", edited), ("generation_config.json", edited), ("model.safetensors", flipped)]
)
def test_a_file_that_was_edited_is_named_with_what_to_do(name: str, change: object, tmp_path: Path) -> None:
    """Or is of another revision, though it reads well."""
    target = Path(shutil.copytree(TARGET, tmp_path / "target"))
    assert told(target) == []
    change(target / name)  # type: ignore[operator]
    (line,) = told(target)
    assert line.startswith(f"{target / name}: sha256 differs from manifest.sha256; fetch it again, or delete ")
    (target / "manifest.sha256").unlink()
    assert told(target) == []


def test_a_drafter_is_looked_at_too(tmp_path: Path) -> None:
    drafter = Path(shutil.copytree(DRAFTER, tmp_path / "drafter"))
    flipped(drafter / "model.safetensors")
    (line,) = told(TARGET, drafter)
    assert line.startswith(f"{drafter / 'model.safetensors'}: sha256 differs")


def test_large_files_are_left_to_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Path(shutil.copytree(TARGET, tmp_path / "target"))
    flipped(target / "model.safetensors")
    monkeypatch.setattr(weights, "MOST_DIGESTED_BYTES", (target / "model.safetensors").stat().st_size - 1)
    assert told(target) == []


def test_a_manifest_that_is_none_is_told(tmp_path: Path) -> None:
    target = Path(shutil.copytree(TARGET, tmp_path / "target"))
    (target / "manifest.sha256").write_text("no digest\n")
    (line,) = told(target)
    assert line.startswith(f"{target / 'manifest.sha256'}: line 1 is not ")
