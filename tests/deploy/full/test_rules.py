"""Alerts fire when they should and only then, by promtool's own clock."""

from pathlib import Path

import pytest
import yaml

from tests.deploy.full.prometheus import promtool
from tests.deploy.test_drift import ROOT, rules

FOLDER = ROOT / "deploy/prometheus"
FILES = sorted(FOLDER.glob("*.test.yaml"))
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


@pytest.mark.parametrize("alert", ALERTS)
@pytest.mark.parametrize("broken", ["vector(1) unless on () vector(1)", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_never_or_always_fires_is_noticed(alert: str, broken: str, tmp_path: Path) -> None:
    written = [yaml.safe_load(file.read_text()) for file in FILES]
    named = [[test for test in tests["tests"] if test["name"].startswith(f"{alert} ")] for tests in written]
    ((tests, found),) = ((tests, found) for tests, found in zip(written, named, strict=True) if found)
    (tmp_path / "rules.test.yaml").write_text(yaml.safe_dump({**tests, "tests": found}))
    document = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            if rule.get("alert") == alert:
                rule["expr"] = broken
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", tmp_path / "rules.test.yaml")
    assert done.returncode != 0
    assert f"alertname: {alert}" in done.stdout + done.stderr
