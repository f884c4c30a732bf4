"""Wheels of a lock, fetched while Debian's packages are installed and kept for the next root.

A root's pip takes them by the lock's hashes as it takes those of an index, so what is installed is the same.
"""

import re
import subprocess
import sys
from pathlib import Path

FETCH_S = 1500.0
PYTHON = "3.11"
"""That of the images."""

_NAMED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def fetch(lock: Path, folder: Path) -> bool:
    """Fetches what of a lock is not in the folder; False where that fails, so that a root's pip asks the index."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
    command += [
        "--no-cache-dir",
        "--require-hashes",
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--dest",
        str(folder),
        "--requirement",
    ]
    try:
        return not subprocess.run([*command, str(lock)], check=False, timeout=FETCH_S).returncode
    except subprocess.TimeoutExpired:
        return False


def prune(folder: Path, locks: list[Path]) -> None:
    """Removes what no lock names any more."""
    wanted = {beginning for lock in locks for beginning in beginnings(lock.read_text())}
    for wheel in folder.glob("*.whl"):
        if _plain("-".join(wheel.name.split("-")[:2])) not in wanted:
            wheel.unlink()


def beginnings(lock: str) -> set[str]:
    """How names of files begin that a lock asks for."""
    return {_plain(f"{name}-{version}") for name, version in _NAMED.findall(lock)}


def _plain(name: str) -> str:
    """Spellings of a name that mean the same."""
    return re.sub(r"[-_.]+", "-", name).lower()
