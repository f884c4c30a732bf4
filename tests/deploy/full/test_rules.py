"""Alerts fire when they should and only then, by promtool's own clock."""

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.full.prometheus import promtool
from tests.deploy.test_drift import ROOT, rules

FOLDER = ROOT / "deploy/prometheus"
FILES = sorted(FOLDER.glob("*.test.yaml"))
pytestmark = pytest.mark.timeout(600)
ALERTS = [rule["alert"] for rule in rules() if "alert" in rule]


def test_rules_are_well_formed() -> None:
    done = promtool("check", "rules", FOLDER / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_resolve_and_are_silent_as_written() -> None:
    done = promtool("test", "rules", *FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_firing_resolved_and_silent() -> None:
    tests = [test for file in FILES for test in yaml.safe_load(file.read_text())["tests"]]
    for alert in ALERTS:
        cases = [[case for case in test.get("alert_rule_test", []) if case["alertname"] == alert] for test in tests]
        outcomes = [[bool(case["exp_alerts"]) for case in found] for found in cases if found]
        assert [True, False] in outcomes, f"{alert} resolves"
        assert [False] in outcomes, f"{alert} is silent"


def broken(expression: str, folder: Path) -> dict[str, list[str]]:
    """The lines by test with which promtool refuses rules whose alerts all have this expression."""
    alerts = [{**rule, "expr": expression} for rule in rules() if "alert" in rule]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "broken", "rules": alerts}]}))
    told: dict[str, list[str]] = {}
    for file in FILES:
        (folder / file.name).write_text(file.read_text())
        done = promtool("test", "rules", folder / file.name)
        assert done.returncode != 0
        for part in re.split(r"^\s*name: ", done.stdout + done.stderr, flags=re.MULTILINE)[1:]:
            name, *lines = part.splitlines()
            told[name.rstrip(",")] = lines
    return told


@pytest.mark.parametrize("expression", ["vector(1) unless on () vector(1)", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_never_or_always_fires_is_noticed(expression: str, tmp_path: Path) -> None:
    """By a test of its own."""
    told = broken(expression, tmp_path)
    for alert in ALERTS:
        own = [line for name, lines in told.items() if name.startswith(f"{alert} ") for line in lines]
        assert any(line.strip().startswith(f"alertname: {alert},") for line in own), f"{alert}: nothing noticed"
