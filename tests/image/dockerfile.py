"""A Dockerfile as its instructions: the packages of Debian, what fills the root, the application, and how it starts."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy/docker"


@dataclass(frozen=True)
class Dockerfile:
    """One file of deploy/docker; any instruction that it does not expect is an error."""

    name: str

    @property
    def instructions(self) -> list[tuple[str, str]]:
        """(instruction, arguments), continued lines joined, comments left out."""
        text = re.sub(r"^#.*\n", "", (DOCKER / f"{self.name}.Dockerfile").read_text(), flags=re.MULTILINE)
        lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
        return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line]

    @property
    def packages(self) -> list[str]:
        """Packages of Debian with their versions, from the list that the file installs."""
        return (DOCKER / f"{self.name}.packages").read_text().split()

    @property
    def base(self) -> list[tuple[str, str]]:
        """What fills the root before the application; the step that installs Debian's packages is left out."""
        steps = self.instructions
        end = steps.index(("WORKDIR", "/app"))
        known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN"}
        assert {step for step, _ in steps[:end]} <= known
        return [(s, a) for s, a in steps[:end] if "packages" not in a and s != "ARG"]

    @property
    def snapshot(self) -> str:
        """The moment whose packages of Debian are taken."""
        (found,) = [a.partition("=")[2] for s, a in self.instructions if s == "ARG" and a.startswith("SNAPSHOT=")]
        return found

    @property
    def application(self) -> list[tuple[Path, str]]:
        """(source in the repository, place below /app) of every copied file and folder."""
        steps = self.instructions
        copies = [a.split() for s, a in steps[steps.index(("WORKDIR", "/app")) :] if s == "COPY"]
        return [(ROOT / source, place) for source, place in copies]

    @property
    def finishing(self) -> list[str]:
        """Commands that run in /app, behind its copies."""
        steps = self.instructions
        return [arguments for step, arguments in steps[steps.index(("WORKDIR", "/app")) :] if step == "RUN"]

    @property
    def entry(self) -> list[str]:
        """The entry point."""
        (entry,) = [arguments for step, arguments in self.instructions if step == "ENTRYPOINT"]
        return [str(word) for word in json.loads(entry)]

    @property
    def user(self) -> int:
        """The user and group that it runs as."""
        (user,) = [arguments for step, arguments in self.instructions if step == "USER"]
        name, group = user.split(":")
        assert name == group
        return int(name)

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its ENV, PATH made whole with Debian's own."""
        found = [word for step, arguments in self.instructions if step == "ENV" for word in shlex.split(arguments)]
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {name: value.replace("$PATH", path) for name, _, value in (word.partition("=") for word in found)}
