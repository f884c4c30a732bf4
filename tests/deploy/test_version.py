"""One command makes a version everywhere, and a release whose parts disagree is refused."""

import datetime
import shutil
from pathlib import Path

import pytest
import yaml

from deploy import version
from tests.deploy.test_drift import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in (*version.PLACES, "CHANGELOG.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_every_place_says_the_same() -> None:
    said = version.versions()
    assert all(len(each) == 1 for each in said.values()), said
    assert len(set().union(*said.values())) == 1, said


def test_a_new_version_is_everywhere_and_has_a_section(checkout: Path) -> None:
    version.change("9.8.7rc1", version.PLACES, checkout)
    version.date("9.8.7rc1", datetime.date(2031, 2, 3), checkout)
    assert version.disagreement("v9.8.7rc1", checkout) == ""
    before, after = (root.joinpath("CHANGELOG.md").read_text() for root in (ROOT, checkout))
    assert after.replace("\n## [9.8.7rc1] - 2031-02-03\n", "", 1) == before
    chart = yaml.safe_load((checkout / "deploy/helm/paceline/Chart.yaml").read_text())
    assert chart["version"] == yaml.safe_load((ROOT / "deploy/helm/paceline/Chart.yaml").read_text())["version"]
    version.change("1.2.3", version.CHART, checkout)
    chart = yaml.safe_load((checkout / "deploy/helm/paceline/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("1.2.3", "9.8.7rc1")


@pytest.mark.parametrize("file", version.PLACES)
def test_a_place_that_was_forgotten_stops_a_release(checkout: Path, file: str) -> None:
    version.change("9.8.7", {each: p for each, p in version.PLACES.items() if each != file}, checkout)
    version.date("9.8.7", datetime.date(2031, 2, 3), checkout)
    assert version.disagreement("v9.8.7", checkout).startswith(f"{file} says ")


def test_a_release_without_a_section_is_refused(checkout: Path) -> None:
    version.change("9.8.7", version.PLACES, checkout)
    assert version.disagreement("v9.8.7", checkout) == "CHANGELOG.md has no section for 9.8.7"


def test_the_notes_of_a_release_are_its_own_section(checkout: Path) -> None:
    own = "### Added\n\n- Something [1] new.\n\n### Fixed\n\n- Something."
    older = "## [9.8.6] - 2031-01-01\n\n- Old.\n"
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{own}\n\n{older}")
    assert version.notes("v9.8.7", checkout) == ""
    version.date("9.8.7", datetime.date(2031, 2, 3), checkout)
    assert version.notes("v9.8.7", checkout) == own
    assert version.notes("v9.8.6", checkout) == "- Old."
    assert version.notes("v9x8.7", checkout) == ""


@pytest.mark.parametrize("job", ["wheel", "images", "chart"])
def test_what_a_release_publishes_says_what_it_holds_and_who_built_it(job: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    text = str(workflow["jobs"][job]["steps"])
    assert "actions/attest-build-provenance@" in text
    held = {"wheel": "cyclonedx-py environment served", "images": "'sbom': True", "chart": "cat parts/worker.digest"}
    assert held[job] in text
    assert ("aquasecurity/trivy-action@" in text) == (job == "images")
