"""Jobs of a workflow on this machine: shell steps run as they stand, steps of others' actions by what they leave.

An action that is not known here is an error, and so is an expression without a value.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.test_drift import ROOT

STEP_S = 240.0
NOTHING = (
    *("actions/setup-python", "docker/setup-qemu-action", "docker/setup-buildx-action", "docker/login-action"),
    "aquasecurity/trivy-action",
)
TOOLS = ROOT / "tests/deploy/resources/release_tools.py"


@dataclass
class Runner:
    """Everything that jobs of one run share; `calls` is a file with the calls of stand-ins, a JSON list a line."""

    workflow: dict[str, Any]
    checkout: Path
    folder: Path
    variables: dict[str, str]
    given: dict[str, str] = field(default_factory=dict)
    """Values of expressions such as secrets.GITHUB_TOKEN."""

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def calls(self) -> Path:
        return self.folder / "calls"

    def run(self, name: str, matrix: dict[str, str]) -> Path:
        """Runs a job; returns the folder that it worked in.

        Raises:
            AssertionError: a step failed; the message is the step and what it wrote.
        """
        place = self.folder / "-".join([name, matrix.get("image", "")])
        place.mkdir()
        job = Job(self, place, self.given | {f"matrix.{key}": value for key, value in matrix.items()})
        for step in self.workflow["jobs"][name]["steps"]:
            job.step(step)
        return place

    def tools(self) -> Path:
        """A folder with the stand-ins."""
        folder = self.folder / "bin"
        if not folder.is_dir():
            folder.mkdir()
            for name in ("pipx", "python", "pip", "helm", "gh", "docker"):
                (folder / name).write_text(f"#!{sys.executable}\n{TOOLS.read_text()}")
                (folder / name).chmod(0o755)
        return folder


@dataclass
class Job:
    """One job while it runs; `known` are values of its expressions."""

    runner: Runner
    place: Path
    known: dict[str, str]

    def step(self, step: dict[str, Any]) -> None:
        """Runs a step."""
        environment = {k: self.filled(v) for k, v in {**self.runner.workflow["env"], **step.get("env", {})}.items()}
        if "run" in step:
            self._shell(step, environment)
            return
        action, given = step["uses"].partition("@")[0], step.get("with", {})
        if action in NOTHING:
            return
        actions: dict[str, Callable[[dict[str, Any], dict[str, str], str], None]] = {
            "actions/checkout": self._checkout,
            "actions/upload-artifact": self._upload,
            "actions/download-artifact": self._download,
            "actions/attest-build-provenance": self._attest,
            "docker/build-push-action": self._build,
        }
        actions[action]({k: self.filled(v) for k, v in given.items()}, environment, step.get("id", ""))

    def filled(self, text: object) -> str:
        """A text with its expressions replaced."""
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self.known[found[1]], str(text))

    def _shell(self, step: dict[str, Any], environment: dict[str, str]) -> None:
        output = self.runner.folder / "output"
        output.write_text("")
        path = f"{self.runner.tools()}:{os.environ['PATH']}"
        variables = {"PATH": path, "HOME": str(self.place), "CALLS": str(self.runner.calls)}
        done = subprocess.run(
            # What a runner calls for a step that names no shell.
            ["bash", "-e", "-c", self.filled(step["run"])], cwd=self.place, capture_output=True, text=True, check=False,
            env=variables | self.runner.variables | environment | {"GITHUB_OUTPUT": str(output)}, timeout=STEP_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{step['run']}: {done.stdout}{done.stderr}"
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.known[f"steps.{step['id']}.outputs.{name}"] = value

    def _checkout(self, given: dict[str, str], environment: dict[str, str], step: str) -> None:
        shutil.copytree(self.runner.checkout, self.place, symlinks=True, dirs_exist_ok=True)

    def _upload(self, given: dict[str, str], environment: dict[str, str], step: str) -> None:
        target, source = self.runner.artifacts / given["name"], self.place / given["path"]
        target.mkdir(parents=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)

    def _download(self, given: dict[str, str], environment: dict[str, str], step: str) -> None:
        found = [self.runner.artifacts / given["name"]] if "name" in given else sorted(self.runner.artifacts.iterdir())
        assert "name" in given or given["merge-multiple"] == "True"
        for each in found:
            shutil.copytree(each, self.place / given["path"], dirs_exist_ok=True)

    def _attest(self, given: dict[str, str], environment: dict[str, str], step: str) -> None:
        for pattern in given.get("subject-path", "").split():
            assert list(self.place.glob(pattern)), f"nothing is {pattern}"
        if "subject-name" in given:
            assert re.fullmatch(r"[a-z0-9./-]+", given["subject-name"])
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", given["subject-digest"])

    def _build(self, given: dict[str, str], environment: dict[str, str], step: str) -> None:
        """An image without a tag is called by the digest of its name; like the original it leaves a record."""
        assert (self.place / given["file"]).is_file()
        assert "tags" not in given, "what is tagged is pulled, whatever a later step finds"
        pushed = dict(each.split("=") for each in given["outputs"].split(","))
        assert pushed["push-by-digest"] == pushed["push"] == "true"
        made = digest(pushed["name"])
        self.known[f"steps.{step}.outputs.digest"] = made
        if environment.get("DOCKER_BUILD_RECORD_UPLOAD") != "false":
            record = self.runner.artifacts / f"record-{made[7:15]}.dockerbuild"
            record.mkdir(parents=True)
            (record / record.name).write_text("of a build")


def digest(name: str) -> str:
    """The digest by which an image of this name is called."""
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
