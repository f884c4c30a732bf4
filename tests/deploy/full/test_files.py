"""Dockerfiles, compose files and scripts with the tools of their kind; what is generated is generated again."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.test_drift import ROOT

TOOLS = Path(sys.executable).parent


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_are_what_the_code_builds() -> None:
    run(sys.executable, "-m", "deploy.grafana.build", "--check")


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_dockerfiles_are_clean(name: str) -> None:
    run(TOOLS / "hadolint", f"deploy/docker/{name}.Dockerfile")


@pytest.mark.parametrize("name", ["laptop", "gpu"])
def test_compose_files_follow_the_specification(name: str) -> None:
    run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", f"deploy/docker/compose.{name}.yaml")


def test_shell_scripts_are_clean() -> None:
    run(TOOLS / "shellcheck", *ROOT.glob("**/install.sh"), *ROOT.glob("tests/deploy/*.sh"), ROOT / ".ci/run")
