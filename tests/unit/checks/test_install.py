"""requirements/install.sh with a pip that only talks: what a user sees while it works, and how it ends."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TALK = """#!/usr/bin/env bash
[[ "$*" == *--require-hashes* ]] || exit 0
echo "Looking in indexes: elsewhere"
echo "Collecting torch==2.13.0 (from -r lock (line 1))"
echo "  Downloading torch-2.13.0-cp312-none-linux_x86_64.whl (890.1 MB)"
echo "Processing /wheels/rich-15.0.0-py3-none-any.whl (from -r lock (line 4))"
echo "  Downloading small-1-py3-none-any.whl (12 kB)"
echo "Installing collected packages: rich, torch"
exit {code}
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.write_text("torch==2.13.0 \\\n    --hash=sha256:0\n    # via x\nrich==15.0.0 \\\n    --hash=sha256:1\n")
    return path


def install(folder: Path, lock: Path, code: int) -> subprocess.CompletedProcess[str]:
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(TALK.replace("{code}", str(code)))
    python.chmod(0o755)
    command = [str(one) for one in (ROOT / "requirements/install.sh", folder, lock, "requirements/torch.txt")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_every_package_is_told_as_its_turn_comes(tmp_path: Path, lock: Path) -> None:
    done = install(tmp_path / "venv", lock, 0)
    assert done.returncode == 0
    _, *lines = done.stderr.splitlines()
    assert lines == [
        "  1 of 2: torch==2.13.0",
        "      downloading (890.1 MB)",
        "  2 of 2: rich-15.0.0-py3-none-any.whl",
        "  unpacking",
    ]
    assert (tmp_path / "venv/.installed").exists()


def test_a_failure_of_pip_is_one_of_the_installation(tmp_path: Path, lock: Path) -> None:
    done = install(tmp_path / "venv", lock, 1)
    assert done.returncode == 1
    assert not (tmp_path / "venv/.installed").exists()


PYTHON = """#!/usr/bin/env bash
echo "{name} $*" >> {log}
if [[ "$*" == "-m venv "* ]]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
[[ "$*" != *"import torch"* ]]
"""
UV = """#!/usr/bin/env bash
echo "uv $*" >> {log}
if [[ $1 == venv ]]; then mkdir -p "${{!#}}/bin" && cp .venv/bin/python "${{!#}}/bin/python"; fi
[[ $1 == venv || {code} == 0 ]]
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_client_s_environment_is_made_by_uv_and_else_by_pip(tmp_path: Path, lock: Path, code: int) -> None:
    log = tmp_path / "log"
    for path, text in ((".venv/bin/python", PYTHON), (".venv-uv/bin/uv", UV)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text.format(name="python", log=log, code=code))
        (tmp_path / path).chmod(0o755)
    command = [str(ROOT / "requirements/client.sh"), "folder", str(lock)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    called = log.read_text().splitlines()
    made = [line.split()[:4] for line in called if "--require-hashes" in line]
    assert made == [["uv", "pip", "install", "--quiet"], ["python", "-m", "pip", "install"]][: code + 1]
    assert all(str(lock) in line and "--no-deps" in line for line in called if "--require-hashes" in line)
    assert (tmp_path / "folder/.installed").exists()
