"""Traps of this layout."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def ignored(path: str) -> bool:
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 0


def test_git_ignores_no_source() -> None:
    sources = (
        "services/target/engine/engine.py",
        "services/common/pb/paceline/v1/types_pb2.py",
        "deploy/cluster/app.py",
    )
    assert not any(ignored(path) for path in (*sources, "models/embedded/target/model.safetensors"))
    assert ignored(".venv")
    assert ignored("services/__pycache__/engine.pyc")


def test_no_python_lies_under_proto() -> None:
    assert not list((ROOT / "proto").rglob("*.py"))


def test_every_make_target_is_phony_and_explained() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    joined = "\n".join(lines).replace("\\\n", " ")
    phony = next(line for line in joined.splitlines() if line.startswith(".PHONY")).split()[1:]
    rules = [
        line.split(":")[0]
        for line in lines
        if line[:1].isalpha() and ":" in line and ":=" not in line and "?=" not in line
    ]
    assert set(rules) == set(phony)
    explained = {line.split(":")[0] for line in lines if "  ## " in line}
    assert all(name.startswith("check-") for name in set(phony) - explained)
