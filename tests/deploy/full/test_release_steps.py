"""A release from its tag on: every shell step of its workflow runs, and what is published fits together."""

import datetime
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import version
from tests.deploy.full.workflow import Runner, digest
from tests.deploy.test_drift import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
NEW = "9.8.7"
OWNER, REPOSITORY = "An-Owner", "An-Owner/Paceline"
IMAGES = "ghcr.io/an-owner/paceline"
RUN = {"secrets.GITHUB_TOKEN": "a token", "github.actor": "somebody", "env.REGISTRY": "ghcr.io"}
RUN |= {"github.server_url": "https://github.com", "github.repository": REPOSITORY, "github.sha": "0" * 40}


def runner(folder: Path, tag: str) -> Runner:
    """A run for a tag, of this checkout as it is committed at version `NEW`."""
    checkout = folder / "checkout"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        # Tests and results are most of a checkout, and nothing of a release.
        if not name.startswith(("tests/", "docs/log/")) and (ROOT / name).exists():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    version.change(NEW, version.PLACES, checkout)
    version.date(NEW, datetime.date(2031, 2, 3), checkout)
    github = {"GITHUB_REF_NAME": tag, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_REPOSITORY_OWNER": OWNER}
    return Runner(WORKFLOW, checkout, folder, github | {"GITHUB_ACTOR": "somebody"}, RUN)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """The folder of the job that publishes, and what was called."""
    run = runner(tmp_path_factory.mktemp("release"), f"v{NEW}")
    run.run("wheel", {})
    for each in WORKFLOW["jobs"]["images"]["strategy"]["matrix"]["include"]:
        run.run("images", each)
    return run.run("chart", {}), [json.loads(line) for line in run.calls.read_text().splitlines()]


def test_a_release_holds_packages_lists_and_the_chart_and_nothing_else(released: tuple[Path, Any]) -> None:
    place, calls = released
    (published,) = [call for call in calls if call[0] == "gh"]
    assert published[published.index("create") + 1] == f"v{NEW}"
    wanted = {f"paceline-{NEW}-py3-none-any.whl", f"paceline-{NEW}.tar.gz", "paceline.cdx.json", "images.yaml"}
    chart = yaml.safe_load((ROOT / "deploy/helm/paceline/Chart.yaml").read_text())["version"]
    assert {Path(word).name for word in published if word.startswith("parts/")} == wanted | {f"paceline-{chart}.tgz"}
    assert (place / "notes.md").read_text().strip() == version.notes(f"v{NEW}", place)


def test_the_chart_takes_the_images_of_its_release_by_digest(released: tuple[Path, Any]) -> None:
    place, calls = released
    text = (place / "rendered.yaml").read_text()
    for image in ("gateway", "worker"):
        assert f"{IMAGES}/{image}@{digest(f'{IMAGES}/{image}')}" in text
        assert f"{IMAGES}/{image}:" not in text
    (pushed,) = [call for call in calls if call[:2] == ["helm", "push"]]
    assert pushed[-1] == "oci://ghcr.io/an-owner/charts"


def test_every_shell_step_ran(released: tuple[Path, Any]) -> None:
    """What needs a program of somebody else's called its stand-in: none is left out by a condition or a typo."""
    _, calls = released
    wanted = [
        *(["python", "-m", "deploy.version", "--check"], ["pipx", "run", "build==1.6.1"], ["pipx", "run"]),
        *(["python", "-m", "venv"], ["pip", "install"], ["pipx", "run", "--spec"]),
        *(["docker", "buildx", "imagetools"], ["docker", "buildx", "imagetools"]),
        *(["python", "-m", "deploy.version", "--notes"], ["helm", "package"], ["helm", "template"]),
        *(["helm", "registry"], ["helm", "push"], ["gh", "release"]),
    ]
    assert [call[: len(want)] for call, want in zip(calls, wanted, strict=True)] == wanted


def test_an_image_has_its_tag_once_the_scan_has_passed(released: tuple[Path, Any]) -> None:
    _, calls = released
    tagged = [call[-2:] for call in calls if call[0] == "docker"]
    names = [f"{IMAGES}/{image}" for image in ("gateway", "worker")]
    assert tagged == [[f"{name}:{NEW}", f"{name}@{digest(name)}"] for name in names]
    steps = [step.get("uses", step.get("run", "")).partition("@")[0] for step in WORKFLOW["jobs"]["images"]["steps"]]
    (tag,) = [number for number, step in enumerate(steps) if "imagetools" in step]
    assert steps.index("docker/build-push-action") < steps.index("aquasecurity/trivy-action") < tag


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        (f"v{NEW}", "--latest"),
        ("v0.2.0rc1", "--prerelease"),
        ("v0.2.0-rc.1", "--prerelease"),
        ("v1.0.0b2", "--prerelease"),
    ],
)
def test_a_candidate_is_not_the_latest_release(tag: str, kind: str) -> None:
    step = WORKFLOW["jobs"]["chart"]["steps"][-1]["run"]
    asked = subprocess.run(
        ["bash", "-e", "-c", f"gh() {{ echo \"$@\"; }}; {step}"],
        env={"GITHUB_REF_NAME": tag}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert asked.stdout.split()[:4] == ["release", "create", tag, kind]


def test_a_tag_of_another_version_publishes_nothing(tmp_path: Path) -> None:
    run = runner(tmp_path, "v9.8.6")
    with pytest.raises(AssertionError, match=r"not v9\.8\.6: "):
        run.run("wheel", {})
    assert not run.artifacts.exists()
