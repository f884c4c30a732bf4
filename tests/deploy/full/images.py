"""Replays a Dockerfile without Docker: its steps into a folder, its entry point as an unprivileged user.

Knows the few instructions that our files use; any other is an error.
"""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.test_drift import ROOT

VENV = "/opt/venv"
NOTHING_TO_REPLAY = ("useradd",)


@dataclass
class Image:
    """What the replay made: the root of the final stage, its variables and its entry point."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    entry: list[str] = field(default_factory=list)
    user: str = ""
    workdir: str = "/"

    @property
    def app(self) -> Path:
        """The working directory on this machine."""
        return self.root / self.workdir.lstrip("/")

    def copied(self) -> set[str]:
        """Python files of the application, relative to the working directory."""
        return {str(path.relative_to(self.app)) for path in self.app.rglob("*.py")}


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) of a Dockerfile, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", path.read_text())
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def replay(dockerfile: Path, root: Path, packages: Path | None = None) -> Image:
    """Runs every step; both stages share the root, for the second only copies from the first.

    With packages that virtual environment stands for the one that the file would install.
    """
    image = Image(root)
    (root / "usr/local/bin").mkdir(parents=True)
    if packages is not None:
        (root / VENV.lstrip("/")).parent.mkdir()
        (root / VENV.lstrip("/")).symlink_to(packages)
    for instruction, arguments in instructions(dockerfile):
        _STEPS[instruction](image, arguments)
    return image


def _run(image: Image, arguments: str) -> None:
    for step in arguments.split("&&"):
        words = shlex.split(step)
        if words[0] in NOTHING_TO_REPLAY or (VENV in step and (image.root / VENV.lstrip("/")).is_symlink()):
            continue
        words = [str(image.root) + word if word.startswith(("/opt", "/usr/local")) else word for word in words]
        if words[0] == "python":
            words[0] = sys.executable
        subprocess.run(words, cwd=image.app, check=True, capture_output=True)


def _copy(image: Image, arguments: str) -> None:
    if arguments.startswith("--from"):
        return
    *sources, destination = arguments.split()
    for source in sources:
        place = image.app / destination
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)


def _workdir(image: Image, arguments: str) -> None:
    image.workdir = arguments
    image.app.mkdir(parents=True, exist_ok=True)


def _env(image: Image, arguments: str) -> None:
    for pair in shlex.split(arguments):
        name, _, value = pair.partition("=")
        image.variables[name] = value.replace(VENV, str(image.root) + VENV)


def _entry(image: Image, arguments: str) -> None:
    image.entry = [word.strip().strip('"') for word in arguments.strip("[]").split(",")]


def _user(image: Image, arguments: str) -> None:
    image.user = arguments


def _nothing(image: Image, arguments: str) -> None:
    """Instructions that a replay needs not: ARG, FROM, EXPOSE."""


_STEPS = {
    "ARG": _nothing,
    "FROM": _nothing,
    "EXPOSE": _nothing,
    "RUN": _run,
    "COPY": _copy,
    "WORKDIR": _workdir,
    "ENV": _env,
    "ENTRYPOINT": _entry,
    "USER": _user,
}
